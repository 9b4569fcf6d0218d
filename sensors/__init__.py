"""Dagster's sensors: what starts runs, and what keeps Dagster's picture true to the tables."""
