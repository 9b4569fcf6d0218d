"""Serve: what changed in a Delta table is upserted into a database, together with the version that was consumed."""
