"""Upkeep: what keeps the tables small and quick, without touching what they hold."""
