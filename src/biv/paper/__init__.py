"""The paper's experiments: runs as data, trained once, kept in a store."""
