"""JSON Schema: which record it describes, and whether messages are what it says."""
