"""Doctor: is everything there that a drain needs? Each part is tried, none is changed, and no JVM with Spark starts."""
