"""`kdi new`: propose a document for a topic from a sample of its messages. Without a JVM."""
