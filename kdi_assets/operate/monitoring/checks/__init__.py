"""Checks: what can be wrong with a stream's table, measured; no Dagster."""
