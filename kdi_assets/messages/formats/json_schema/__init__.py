"""JSON Schema: the record that a schema describes, and whether messages conform to it."""
