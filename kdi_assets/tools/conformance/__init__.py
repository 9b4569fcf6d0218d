"""Conformance of writers from Kafka to Delta: `python -m kdi_assets.tools.conformance` (docs/conformance.md)."""
