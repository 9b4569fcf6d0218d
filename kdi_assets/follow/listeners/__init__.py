"""Other systems that hear of drains and replays, if they are configured: OpenLineage, and catalogs of tables."""
