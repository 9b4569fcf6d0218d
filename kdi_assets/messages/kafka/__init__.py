"""Kafka: what a cluster holds, and messages of exact ranges."""
