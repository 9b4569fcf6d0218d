"""For demo and tests: an embedded broker, and generated messages."""
