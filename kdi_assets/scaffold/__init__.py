"""`kdi new`: a document for a topic, proposed from a sample of its messages. No JVM."""
