"""The paper's experiments: each run is a frozen record, trained once and kept in a store."""
