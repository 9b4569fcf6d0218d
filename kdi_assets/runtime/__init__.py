"""What the engine runs on: Java, jars, Spark sessions, the warm driver."""
