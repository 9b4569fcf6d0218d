"""The warm driver: a process that owns Spark's JVM, to which other processes attach."""
