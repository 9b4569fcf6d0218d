"""Commands of tables that are made of tables."""
