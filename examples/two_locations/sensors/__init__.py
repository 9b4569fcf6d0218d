"""Sensors of the project."""
