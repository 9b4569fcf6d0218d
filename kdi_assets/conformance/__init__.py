"""A conformance suite for writers from Kafka to Delta: `python -m kdi_assets.conformance` (docs/conformance.md)."""
