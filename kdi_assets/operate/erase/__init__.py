"""Erasing messages from all tables that hold them."""
