"""Served tables in PostgreSQL: rows are staged by Spark's executors and published in one transaction."""
