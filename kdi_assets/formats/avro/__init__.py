"""Avro: single datums, by registry or fingerprint, and object containers."""
