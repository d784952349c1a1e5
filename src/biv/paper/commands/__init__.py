"""The commands of the paper: `biv reproduce` and `biv claims`."""
