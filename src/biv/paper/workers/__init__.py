"""Workers that train stacks of runs: processes on this machine, Dask or Ray."""
