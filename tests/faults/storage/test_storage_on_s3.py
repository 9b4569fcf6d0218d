"""An S3 that refuses, throttles, is full, is slow or loses its answers: the error says so, a retry completes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.errors import Transient
from kdi_assets.streams.spark_errors import StorageForbids
from tests.conftest import DrivenFactory
from tests.faults import others
from tests.faults.s3_proxy import Fault, RandomFaults, Request, S3Proxy

if TYPE_CHECKING:
    pass

FAILS = pytest.mark.scenario("storage fails, throttles, is slow")
FULL = pytest.mark.scenario("disk full, storage read-only")
LETTERS = pytest.mark.scenario("dead letters cannot be written")

DATA = r"PUT .*/date=[^/]*/part-[^/]*\.parquet"
LETTER = r"PUT .*_dead_letters/part-[^/]*\.parquet"
COMMIT = r"PUT .*(?<!_dead_letters)/_delta_log/\d{20}\.json"
LETTERS_COMMIT = r"PUT .*_dead_letters/_delta_log/\d{20}\.json"
WRITES = r"(PUT|POST|DELETE) "
LOG = r"GET .*_delta_log"


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


def meets(fault: Fault, pattern: str, *, times: int = 1_000_000) -> Callable[[Request], Fault]:
    """The fault for the first requests of this method and path."""
    left = [times]

    def decide(request: Request) -> Fault:
        if left[0] and re.search(pattern, unquote(f"{request.method} {request.path}")):
            left[0] -= 1
            return fault
        return "none"

    return decide


def heals(request: Request) -> Fault:
    """No fault from now on."""
    return "none"


@pytest.mark.parametrize(
    ("fault", "pattern", "cause"),
    [
        pytest.param("refused", DATA, "403", marks=FAILS, id="a data file is refused"),
        pytest.param("full", DATA, "507", marks=FULL, id="no room for a data file"),
        pytest.param("refused", LETTER, "403", marks=[FAILS, LETTERS], id="the letters are refused"),
        pytest.param("full", LETTERS_COMMIT, "507", marks=[FULL, LETTERS], id="no room for the letters' commit"),
        pytest.param("refused", COMMIT, "403", marks=FAILS, id="the commit is refused"),
        pytest.param("full", COMMIT, "507", marks=FULL, id="no room for the commit"),
        pytest.param("conflict", COMMIT, "409", marks=FAILS, id="the commit meets conflicts for ever"),
        pytest.param("refused", LOG, "403", marks=FAILS, id="the log cannot be read"),
        pytest.param("refused", WRITES, "403", marks=FULL, id="the bucket is read-only"),
    ],
)
def test_a_fault_of_s3_ends_the_drain_with_its_cause_and_a_retry_completes(
    driven: DrivenFactory, proxy: S3Proxy, fault: Fault, pattern: str, cause: str
) -> None:
    """Purpose: whatever S3 refuses, nothing of it may be visible, and the user must read the cause.
    Procedure: drain good and malformed messages; drain more and leave a checkpoint; more of them; drain while one kind
    of request meets a fault; drain once more without it.
    Pass: a refusal, Terminal where a right or room is missing, with S3's status in its first line; table and letters as
    they were before; afterwards every offset is there exactly once.
    """
    web = driven(partitions=1)
    web.produce(20, bad=0.2)
    web.drain()
    before = list(web.drain_rounds(1, 6))
    others.checkpoint(web)
    produced = web.produce(20, bad=0.2, seed=2)
    version = web.version()

    proxy.fault = meets(fault, pattern)
    with pytest.raises(StorageForbids if cause in ("403", "507") else Transient) as refused:
        web.drain()
    proxy.fault = heals

    assert cause in refused.value.message_parts()[0]
    assert proxy.count(fault)
    assert web.version() == version
    web.assert_each_offset_once(before)
    web.drain()
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        pytest.param("answer dropped", DATA, id="answers about a data file are lost"),
        pytest.param("answer dropped", LETTERS_COMMIT, id="answers about the letters are lost"),
        pytest.param("answer dropped", COMMIT, id="answers about the commit are lost"),
        pytest.param("slow down", DATA, id="a data file is throttled"),
        pytest.param("slow down", COMMIT, id="the commit is throttled"),
        pytest.param("slow down", LOG, id="the log is throttled"),
        pytest.param("conflict", COMMIT, id="the commit meets conflicts"),
    ],
)
@FAILS
def test_a_fault_of_s3_that_passes_costs_time_and_nothing_else(
    driven: DrivenFactory, proxy: S3Proxy, fault: Fault, pattern: str
) -> None:
    """Purpose: S3 throttles and loses answers every day; its client and our log store repeat such requests.
    Procedure: a drain of good and malformed messages makes the tables; another one while the first two requests of one
    kind meet a fault.
    Pass: it ends well; every offset is there exactly once.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 20, bad=0.2)
    produced = web.produce(20, bad=0.2, seed=2)

    proxy.fault = meets(fault, pattern, times=2)
    report = web.drain()

    assert proxy.count(fault) == 2
    assert len(report.commits) == 1
    web.assert_each_offset_once(produced)


@FAILS
@FULL
def test_a_table_that_cannot_be_made_in_a_bucket_is_made_by_the_next_drain(
    driven: DrivenFactory, proxy: S3Proxy
) -> None:
    """Purpose: the first commit meets the same faults as every other, without an existing table.
    Procedure: the first drain of a stream finds a full storage, the second may not put its commit, the third gets no
    answer about it.
    Pass: each refusal names its cause as long as there is no table; then every offset is there exactly once.
    """
    web = driven(partitions=1)
    produced = web.produce(20, bad=0.2)

    for fault, cause in (("full", "507"), ("refused", "403")):
        proxy.fault = meets(fault, COMMIT)  # type: ignore[arg-type]
        with pytest.raises(StorageForbids, match=cause):
            web.drain()
        assert TableLog.open(web.uri) is None
    proxy.fault = meets("answer dropped", COMMIT, times=1)
    web.drain()

    assert proxy.count("answer dropped") == 1
    web.assert_each_offset_once(produced)


@FAILS
def test_slow_s3_costs_time_and_nothing_else(driven: DrivenFactory, proxy: S3Proxy) -> None:
    """Purpose: a far or busy S3 answers late; the drain must neither give up nor repeat anything.
    Procedure: a drain while each request takes 20 ms, and every commit half a second.
    Pass: it ends well; every offset is there exactly once.
    """
    web = driven(partitions=1)
    produced = web.produce(20, bad=0.2)

    proxy.delay_seconds = lambda request: 0.5 if request.conditional else 0.02
    web.drain()

    web.assert_each_offset_once(produced)


@FAILS
@LETTERS
def test_rounds_of_random_faults_of_s3_lose_and_double_nothing(
    driven: DrivenFactory, proxy: S3Proxy, pytestconfig: pytest.Config
) -> None:
    """Purpose: faults that nobody thought of, in random order, repeatable by the seed.
    Procedure: six rounds: produce 20 messages, a fifth of them malformed; drain while every request of Spark is
    refused, throttled, meets a conflict or loses its answer with its own probability; then one drain without faults.
    Pass: each drain ends well or with a refusal that can be repeated; after each, nothing is there twice; at the end,
    everything is there.
    """
    web, refusals = driven(partitions=2), 0
    seed = int(pytestconfig.getoption("--seed"))

    for round_ in range(6):
        produced = web.produce(20, bad=0.2, seed=round_)
        chances = {"answer dropped": 0.1, "conflict": 0.1, "slow down": 0.05, "refused": 0.01}
        proxy.fault = RandomFaults(100 * seed + round_, chances)  # type: ignore[arg-type]
        try:
            web.drain()
        except (Transient, StorageForbids):
            refusals += 1
        proxy.fault = heals
        found = web.found()  # nothing is there twice; some may still wait
        there = {(row["meta"]["kafka"]["partition"], row["meta"]["kafka"]["offset"]) for row in found.rows}
        there |= {(letter["partition"], letter["offset"]) for letter in found.dead_letters}
        web.assert_each_offset_once([m for m in produced if (m.topic_partition.partition, m.offset) in there])
    web.drain()

    assert proxy.count("answer dropped") and proxy.count("slow down"), f"seed {seed}: no fault was met"
    web.assert_each_offset_once(produced)
