"""Avro object containers: opened in Spark's Python workers, their datums decoded in the JVM."""
