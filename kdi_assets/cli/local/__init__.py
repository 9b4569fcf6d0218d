"""Servers and messages on this machine."""
