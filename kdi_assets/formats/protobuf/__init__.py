"""Protobuf: what a descriptor says of a message, and how its bytes become columns."""
