"""The commands `biv reproduce` and `biv claims`, and the part of `biv report` for stores."""
