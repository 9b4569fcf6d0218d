"""The warm driver: a process that owns Spark's JVM, and how other processes attach to it."""
