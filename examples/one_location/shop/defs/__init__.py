"""The documents of the tables."""
