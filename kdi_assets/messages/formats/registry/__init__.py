"""Schema registry: schemas by id. Only the driver process asks it, without a JVM; executors never do."""
