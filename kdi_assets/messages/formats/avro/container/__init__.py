"""Avro object containers: Spark's Python workers open them, the JVM decodes their datums."""
