"""Upkeep: keeps table logs small and Spark's start fast, without changing data."""
