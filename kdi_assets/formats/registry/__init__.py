"""Schema registry: what the id in front of a message stands for. No JVM; the driver asks, executors never do."""
