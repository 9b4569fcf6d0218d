"""The way of a message: plan, read, decode, shape, split, dead letters, commit."""
