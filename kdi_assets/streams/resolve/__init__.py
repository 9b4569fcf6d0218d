"""Decisions that a drain refuses to make by itself: the actions of `kdi resolve`."""
