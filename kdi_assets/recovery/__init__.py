"""What a drain refuses to decide: one module for each decision of `kdi resolve`."""
