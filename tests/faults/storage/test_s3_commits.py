"""A commit on S3: one put with a condition, whatever the network does to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from kdi_assets.tools.local.s3_server import S3Server
from tests.faults.s3_proxy import Fault, Request, S3Proxy
from tests.faults.storage.log_writer import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "kdi.storage.ConditionalPutLogStore"
DELTAS_STORE = "io.delta.storage.S3SingleDriverLogStore"
COMMIT = "table/_delta_log/00000000000000000001.json"


class Log(LogWriter):
    """A log in a bucket, and what another client sees of it."""

    def __init__(self, spark: SparkSession, lake: str, server: S3Server, store: str = STORE) -> None:
        super().__init__(spark, store, f"{lake}/{COMMIT}")
        self._client, self._bucket = server.client(), urlsplit(lake).netloc

    def stored(self) -> str:
        """The commit's content, read by another client."""
        key = f"lake/{COMMIT}"
        return str(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read().decode())

    def exists(self) -> bool:
        """Whether the commit is there."""
        listed = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"lake/{COMMIT}")
        return bool(listed["KeyCount"])


@pytest.fixture
def log(spark: SparkSession, s3_lake: str, s3_server: S3Server, proxy: S3Proxy) -> Log:
    """The log of a table in the bucket."""
    return Log(spark, s3_lake, s3_server)


def first(count: int, fault: Fault) -> Any:
    """The fault for the first conditional requests."""
    left = [fault] * count

    def decide(request: Request) -> Fault:
        return left.pop() if request.conditional and left else "none"

    return decide


def test_a_version_is_written_once_and_its_content_stays(log: Log, proxy: S3Proxy) -> None:
    log.write("mine")

    assert "FileAlreadyExistsException" in log.refusal("another")
    assert log.stored() == "mine\n"
    assert sum(request.conditional for request, _ in proxy.seen) == 2


def test_of_drivers_that_write_one_version_at_once_one_wins(log: Log) -> None:
    (winner,) = log.winners()

    assert log.stored() == f"{winner}\n"


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_a_put_whose_answer_was_lost_is_recognised_as_our_own(log: Log, proxy: S3Proxy) -> None:
    """Purpose: the client repeats the put, which then fails on the file that it has just written.
    Procedure: drop the answer of the first conditional put.
    Pass: the write succeeds; a second put was refused by the storage; another content is refused.
    """
    proxy.fault = first(1, "answer dropped")

    log.write("mine")

    assert proxy.count("answer dropped") == 1
    assert sum(request.conditional for request, _ in proxy.seen) == 2
    assert "FileAlreadyExistsException" in log.refusal("another")
    assert log.stored() == "mine\n"


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_a_conflict_is_tried_again_and_a_lasting_one_is_an_error_without_a_commit(log: Log, proxy: S3Proxy) -> None:
    """Purpose: 409 means that another conditional put is under way, which may win or fail.
    Procedure: answer all conditional puts with 409; then only three of them; then one, when the version is taken.
    Pass: the first write says what happened and has written nothing, the second succeeds, the third has lost.
    """
    proxy.fault = first(1000, "conflict")

    refusal = log.refusal("mine")

    assert "409 (conflict)" in refusal
    assert "The next plan reads the log." in refusal
    assert not log.exists()
    proxy.fault = first(3, "conflict")
    log.write("mine")
    assert log.stored() == "mine\n"
    proxy.fault = first(1, "conflict")
    assert "FileAlreadyExistsException" in log.refusal("another")


@pytest.mark.parametrize("dropped", [0, 1])
def test_a_commit_in_several_parts_has_the_condition_as_well(
    log: Log, proxy: S3Proxy, spark: SparkSession, dropped: int
) -> None:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("fs.s3a.multipart.size", "5M")
    configuration.set("fs.s3a.multipart.threshold", "5M")
    proxy.fault = first(dropped, "answer dropped")
    try:
        log.write("x" * 12_000_000)
        assert "FileAlreadyExistsException" in log.refusal("y" * 12_000_000)
    finally:
        configuration.unset("fs.s3a.multipart.size")
        configuration.unset("fs.s3a.multipart.threshold")

    assert log.stored() == "x" * 12_000_000 + "\n"
    assert any(request.conditional and request.method == "POST" for request, _ in proxy.seen)


def test_a_file_that_may_be_replaced_is_put_without_a_condition(log: Log, proxy: S3Proxy) -> None:
    log.write("old", overwrite=True)
    log.write("new", overwrite=True)

    assert log.stored() == "new\n"
    assert any(request.is_put for request, _ in proxy.seen)
    assert not any(request.conditional for request, _ in proxy.seen)


def test_deltas_own_store_puts_without_a_condition(
    spark: SparkSession, s3_lake: str, s3_server: S3Server, proxy: S3Proxy
) -> None:
    """If this fails, Delta's store may have become safe, and ours may be superfluous."""
    Log(spark, s3_lake, s3_server, DELTAS_STORE).write("mine")

    assert any(request.is_put for request, _ in proxy.seen)
    assert not any(request.conditional for request, _ in proxy.seen)
