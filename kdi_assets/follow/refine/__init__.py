"""Refine: what is new in upstream tables, by table version, becomes rows of a refined table, exactly once."""
