"""Followers: tables, databases and topics that are kept up to date by what is new in a Delta table."""
