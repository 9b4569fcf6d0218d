"""Kinesis as a source: its streams by boto3 on the driver, their records by AWS's SDK for Java on the executors."""
