"""Decisions that a drain refuses to make by itself: one module for each action of `kdi resolve`."""
