"""Connections: where topics, streams, registries and databases are, and how they are reached."""
