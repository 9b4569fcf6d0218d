"""Positions and history as the table's own log records them, and the entries that commits add."""
