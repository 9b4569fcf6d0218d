"""Positions and history as the table's own log records them, and the one adapter that commits to it."""
