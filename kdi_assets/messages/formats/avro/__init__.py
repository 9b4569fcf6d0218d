"""Avro: single datums, with a registry's id or a fingerprint before them, and object containers."""
