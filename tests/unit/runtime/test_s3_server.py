"""The S3 server of the tests: boto3 and delta-rs reach it by the environment alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from deltalake import DeltaTable, write_deltalake


def test_one_of_many_conditional_puts_creates_the_object(bucket: str) -> None:
    client = boto3.client("s3")

    def creates(body: bytes) -> bool:
        try:
            client.put_object(Bucket=urlsplit(bucket).netloc, Key="key", Body=body, IfNoneMatch="*")
        except ClientError as refused:
            assert refused.response["Error"]["Code"] == "PreconditionFailed"
            return False
        return True

    bodies = [b"%d" % number for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        won = [body for body, created in zip(bodies, threads.map(creates, bodies), strict=True) if created]

    assert len(won) == 1
    assert client.get_object(Bucket=urlsplit(bucket).netloc, Key="key")["Body"].read() == won[0]


def test_delta_rs_appends_to_a_table_and_reads_it(bucket: str) -> None:
    for number in range(3):
        write_deltalake(f"{bucket}/lake/table", pa.table({"number": [number]}), mode="append")

    table = DeltaTable(f"{bucket}/lake/table")
    assert table.version() == 2
    assert sorted(table.to_pyarrow_table()["number"].to_pylist()) == [0, 1, 2]


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_missing_is_not_created() -> None:
    with pytest.raises(OSError, match="NoSuchBucket|not found"):
        write_deltalake("s3://no-such-bucket/table", pa.table({"number": [1]}))
