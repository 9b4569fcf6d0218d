"""Documents: what they declare, and how they are loaded."""
