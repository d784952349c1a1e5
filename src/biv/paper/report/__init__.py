"""Reports, tables and figures of the paper's experiments, built from the results in a store."""
