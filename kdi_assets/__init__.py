"""Kafka topics as Delta tables, every message exactly once, as Dagster assets on Spark."""
