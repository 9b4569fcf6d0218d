"""For demo and tests: servers of Kafka, Kinesis and S3 on this machine, and generated messages."""
