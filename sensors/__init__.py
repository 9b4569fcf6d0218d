"""Dagster's sensors: they start runs, and log the events that Dagster lacks."""
