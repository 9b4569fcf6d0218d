"""Message bytes to typed records, with a reason for every message that is none."""
