"""Storage that fails, throttles, fills up or is slow during a drain: the error says so, nothing half visible remains, a
retry completes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kdi_assets.delta.log import TableLog
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults import others
from tests.faults.storage.faulty_files import DISK_FULL, READ_ONLY, Fault, FaultyStorage
from tests.faults.topics import TransactionalPublisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETRY, DECIDE = 75, 1
FAILS = pytest.mark.scenario("storage fails, throttles, is slow")
FULL = pytest.mark.scenario("disk full, storage read-only")
LETTERS = pytest.mark.scenario("dead letters cannot be written")

DATA = r"/date=[^/]*/part-[^/]*\.parquet$"
LETTER = r"_dead_letters/part-[^/]*\.parquet$"
COMMIT = r"(?<!_dead_letters)/_delta_log/\d{20}\.json$"
WRITTEN_COMMIT = r"(?<!_dead_letters)/_delta_log/\.?\d{20}\.json.*\.tmp$"
LOG = r"/_delta_log/\d{20}\.(json|crc|checkpoint\.parquet)$"
LETTERS_COMMIT = r"_dead_letters/_delta_log/\d{20}\.json$"


@pytest.fixture(scope="module")
def _storage(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[FaultyStorage]:
    storage = FaultyStorage(tmp_path_factory.mktemp("storage"), spark)
    yield storage
    storage.stop()


@pytest.fixture
def storage(_storage: FaultyStorage) -> Iterator[FaultyStorage]:
    """Storage that works until a test adds faults, and works again after the test."""
    yield _storage
    _storage.heals()


def drain_well(storage: FaultyStorage, web: DrivenStream) -> None:
    """`kdi drain`, which succeeds."""
    drained = storage.drain(web)
    assert drained.code == 0, drained.err


def drain_refused(storage: FaultyStorage, web: DrivenStream, cause: str) -> None:
    """`kdi drain`, which fails with the cause in the line before "Safe"."""
    failed = storage.drain(web)
    happened, _, _ = failed.err.partition("\n  Safe: ")
    code = DECIDE if cause in (DISK_FULL, READ_ONLY) else RETRY
    assert (failed.code, cause in happened.splitlines()[-1]) == (code, True), failed.err


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("create", DATA), marks=[FAILS, pytest.mark.core], id="a data file cannot be made"),
        pytest.param(Fault("write", DATA, DISK_FULL), marks=[FULL], id="disk full in a data file"),
        pytest.param(Fault("write", LETTER, DISK_FULL), marks=[FULL, LETTERS], id="disk full in the letters"),
        pytest.param(Fault("rename", LETTERS_COMMIT), marks=[FAILS, LETTERS], id="the letters cannot be committed"),
        pytest.param(Fault("after rename", LETTERS_COMMIT), marks=[FAILS, LETTERS], id="their answer is lost"),
        pytest.param(Fault("write", WRITTEN_COMMIT, DISK_FULL), marks=FULL, id="disk full in the commit"),
        pytest.param(Fault("rename", COMMIT), marks=FAILS, id="the commit cannot be put into the log"),
        pytest.param(Fault("list", r"/_delta_log$"), marks=FAILS, id="the log cannot be listed"),
        # One reader reads positions and another the snapshot; the second may fail alone.
        pytest.param(Fault("open", LOG), marks=FAILS, id="the log cannot be opened"),
        pytest.param(Fault("create|write|mkdirs|rename|delete", "", READ_ONLY), marks=FULL, id="storage is read-only"),
    ],
)
def test_a_storage_fault_ends_the_drain_with_its_cause_and_a_retry_completes(
    driven: DrivenFactory, storage: FaultyStorage, fault: Fault
) -> None:
    """Purpose: whatever storage refuses, nothing of it may be visible, and the user must read the cause.
    Procedure: `kdi drain` of good and malformed messages; another driver drains more and leaves a checkpoint; more of
    them; `kdi drain` while one kind of operation fails; `kdi drain` once more without the fault.
    Pass: exit code 75, or 1 for a full or read-only disk; the cause in the first line, no traceback; table and letters
    as they were before; afterwards every offset is there exactly once.
    """
    web = driven(partitions=1)
    web.produce(20, bad=0.2)
    drain_well(storage, web)
    before = list(web.drain_rounds(1, 6))
    others.checkpoint(web)
    others.constrain_letters(web)  # storage fails only for Spark
    produced = web.produce(20, bad=0.2, seed=2)
    version = web.version()

    storage.fails(*(Fault(operation, fault.path, fault.what) for operation in fault.operation.split("|")))
    drain_refused(storage, web, fault.what)

    assert storage.met()
    assert web.version() == version
    web.assert_each_offset_once(before)
    storage.heals()
    drain_well(storage, web)
    web.assert_each_offset_once(produced)


@FAILS
@FULL
def test_a_table_that_cannot_be_made_is_made_by_the_next_drain(driven: DrivenFactory, storage: FaultyStorage) -> None:
    """Purpose: the first commit meets the same faults as every other, without an existing table.
    Procedure: the first drain of a stream finds a full disk, the second cannot put its commit into the log, the third
    gets no answer about it.
    Pass: each error names its cause, with exit code 75 as long as there is no table; then every offset is there exactly
    once.
    """
    web = driven(partitions=1)
    produced = web.produce(20, bad=0.2)

    for fault in (Fault("write", WRITTEN_COMMIT, DISK_FULL), Fault("rename", COMMIT)):
        storage.fails(fault)
        drain_refused(storage, web, fault.what)
        assert TableLog.open(web.uri) is None
    storage.fails(Fault("after rename", COMMIT, times=1))
    drain_well(storage, web)

    web.assert_each_offset_once(produced)


@FAILS
def test_slow_storage_costs_time_and_nothing_else(driven: DrivenFactory, storage: FaultyStorage) -> None:
    """Purpose: storage that throttles answers late; the drain must neither give up nor repeat anything.
    Procedure: a drain while files and folders of the lake take 20 ms each to answer, and every commit half a second.
    Pass: it ends well; every offset is there exactly once.
    """
    web = driven(partitions=1)
    produced = web.produce(20, bad=0.2)
    operations = ("create", "close", "open", "rename", "list", "mkdirs")

    storage.fails(Fault("rename", COMMIT, "delay 500"), *(Fault(o, "/bronze/", "delay 20") for o in operations))
    drain_well(storage, web)

    assert len(storage.met()) > 10
    web.assert_each_offset_once(produced)


@FAILS
@FULL
@LETTERS
def test_rounds_of_random_storage_faults_lose_and_double_nothing(
    driven: DrivenFactory, storage: FaultyStorage, pytestconfig: pytest.Config
) -> None:
    """Purpose: faults that nobody thought of, in random order, repeatable by the seed.
    Procedure: six rounds: produce 20 messages, a fifth of them malformed; `kdi drain` while every operation on the lake
    fails with its own probability, also after it was done; then one drain without faults.
    Pass: each drain ends with 0, 1 or 75 and a typed refusal; after each, nothing is there twice; at the end,
    everything is there.
    """
    web = driven(partitions=2)
    seed = int(pytestconfig.getoption("--seed"))
    chances = {"create": 0.1, "write": 0.05, "close": 0.05, "rename": 0.2, "after rename": 0.2, "list": 0.02}
    outcomes = []

    for round_ in range(6):
        produced = web.produce(20, bad=0.2, seed=round_)
        faults = [Fault(o, "/bronze/", f"{DISK_FULL} {o}", p) for o, p in chances.items()]
        storage.fails(*faults, seed=100 * seed + round_)
        drained = storage.drain(web)
        outcomes.append(drained.code)
        assert drained.code in (0, DECIDE, RETRY), f"seed {seed}, round {round_}: {drained.err}\n{storage.met()}"
        storage.heals()
        found = web.found()  # nothing is there twice; some may still wait
        there = {(row["meta"]["kafka"]["partition"], row["meta"]["kafka"]["offset"]) for row in found.rows}
        there |= {(letter["partition"], letter["offset"]) for letter in found.dead_letters}
        web.assert_each_offset_once([m for m in produced if (m.topic_partition.partition, m.offset) in there])
    drain_well(storage, web)

    assert {DECIDE, RETRY} & set(outcomes), f"seed {seed}: no fault was met"
    web.assert_each_offset_once(produced)


@FULL
def test_a_local_folder_of_spark_that_takes_nothing_is_said(driven: DrivenFactory, storage: FaultyStorage) -> None:
    """Purpose: Spark keeps shuffles and spilled rows in a local folder, which may be full while the lake is not.
    Procedure: a drain; an aborted transaction leaves offsets without messages, which need a shuffle to be found; the
    folder becomes unreachable for the driver, drain; it is there again, drain.
    Pass: exit code 75 and the folder in the first line; nothing is committed; afterwards every offset is there once.
    """
    web = driven(partitions=1)
    before = list(web.produce(20, bad=0.2))
    drain_well(storage, web)
    writer = TransactionalPublisher(web.stream.kafka.bootstrap_servers, web.stream.topic)
    with writer.transaction(commit=False):
        writer.produce(web.stream.topic, b"never committed", partition=0)
    produced = web.produce(20, bad=0.2, seed=1)

    with storage.without_local_folder():
        drain_refused(storage, web, "blockmgr")

    web.assert_each_offset_once(before)
    drain_well(storage, web)
    web.assert_each_offset_once(produced)
