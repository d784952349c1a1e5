"""Tables and figures, rebuilt from what a store holds."""
