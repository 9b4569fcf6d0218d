"""Protobuf: descriptors of messages, and their bytes to columns."""
