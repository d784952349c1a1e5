"""Where stacks of runs are trained: processes of this machine, Dask or Ray."""
