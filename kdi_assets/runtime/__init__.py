"""What the engine runs on: Java, jars, the embedded broker, the warm driver, the Spark session."""
