"""Servers and messages on this machine: `kdi broker`, `kinesis`, `generate`."""
