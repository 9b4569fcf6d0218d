"""A document for a topic that none describes yet, proposed from a sample of its messages. No JVM."""
