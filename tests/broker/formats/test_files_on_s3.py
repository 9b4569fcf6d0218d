"""Announcements and files with lake and files in S3 buckets."""

from __future__ import annotations

import io
import json
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdi_assets.documents.model.message_format import Files, Parquet
from kdi_assets.runtime.s3_access import s3_client
from tests.broker.formats.order_files import DAY, ORDERS
from tests.conftest import DrivenFactory


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


def upload(bucket: str, key: str, ids: range) -> None:
    content = io.BytesIO()
    pq.write_table(pa.table({"id": list(ids), "price": [0.5] * len(ids), "day": [DAY] * len(ids)}), content)
    name = bucket.removeprefix("s3://")
    s3_client(bucket, retries=3).put_object(Bucket=name, Key=key, Body=content.getvalue())


def notification(bucket: str, *keys: str) -> str:
    records = [
        {
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": bucket.removeprefix("s3://")}, "object": {"key": quote_plus(key, safe="/")}},
        }
        for key in keys
    ]
    return json.dumps({"Records": records})


def test_objects_that_s3_notifies_of_become_rows(driven: DrivenFactory, bucket: str) -> None:
    web = driven(1, **{**ORDERS, "format": Files(Parquet(), "s3_events", (f"{bucket}/raw",))})
    for number, key in enumerate(("raw/a.parquet", "raw/day=1/b c+ü%20.parquet", "other/c.parquet")):
        upload(bucket, key, range(3 * number, 3 * number + 3))
    web.send(
        notification(bucket, "raw/a.parquet", "raw/day=1/b c+ü%20.parquet"),
        notification(bucket, "other/c.parquet"),
        notification(bucket, "raw/missing.parquet"),
        json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent"}),
    )

    report = web.drain()

    assert web.rows("id", "kafka.index", "kafka.count") == [(n, n, 6) for n in range(6)]
    assert web.letters("offset", "reason") == [(1, "outside_root"), (2, "missing_file")]
    assert report.filtered == 1
    assert web.audit().complete
