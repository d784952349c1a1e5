"""The pages, tables and figures of the paper, rebuilt from what a store holds."""
