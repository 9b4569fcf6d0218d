"""Doctor: tries everything that a drain needs, changes nothing, and starts no JVM with Spark."""
