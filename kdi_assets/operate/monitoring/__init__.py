"""Observing streams: backlog, freshness, table facts, metrics, checks. No Dagster."""
