"""Amazon Kinesis Data Streams on the loopback for tests: streams in memory, standard library only."""
