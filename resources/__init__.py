"""Dagster resources: where things are and which Spark to use; what they do is the engine's."""
