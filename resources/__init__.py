"""Dagster resources and processes: the Spark session, the code server, the run launcher."""
