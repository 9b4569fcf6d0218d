"""The `kdi` command: what to type, what is printed, which exit code."""
