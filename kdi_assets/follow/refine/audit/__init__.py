"""The audit of a refined table."""
