"""What a row of `kdi status` says by its own values: a word, whether it is fresh, the next command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kdi_assets.delta.errors import OvertakenCommit, StorageFailed, StorageUnanswered, TableNotMoved
from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.stream import Cluster, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.errors import UpstreamMissing
from kdi_assets.follow.serve.errors import SourceGone, SourceMissing, TableAlteredByHand
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog
from kdi_assets.operate.monitoring.follower_rows import FollowerRow
from kdi_assets.operate.monitoring.status_row import freshness_level
from kdi_assets.operate.monitoring.stream_row import StreamRow
from kdi_assets.runtime.errors import DriverDiffers
from kdi_assets.streams.announce.errors import FilesAreNotRows


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (FollowerRow("x", TableKind.REFINED, refusal=StorageFailed(uri="s3://x", detail="no answer")), "unreachable"),
        (FollowerRow("x", TableKind.SERVED, refusal=SourceMissing(target="x", uri="/x")), "not begun"),
        (FollowerRow("x", TableKind.ANNOUNCED, has_begun=False), "not begun"),
        (FollowerRow("x", TableKind.ANNOUNCED, refusal=FilesAreNotRows(stream="", uri="", feature="")), "refused"),
    ],
)
def test_a_word_says_whether_someone_must_decide(row: FollowerRow, state: str) -> None:
    assert row.state == state


def test_a_stream_behind_an_open_transaction_is_not_called_fresh() -> None:
    held = {TopicPartition("t", 0): PartitionBacklog(10, 10, 0, open_transaction_offsets=3)}
    limits = FreshnessLimits(60, 600)
    orders = Stream("t", "a/b", "id bigint", "current_date()", Cluster("main", "localhost:1"), freshness=limits)
    row = StreamRow(orders, Backlog("a/b", held, 0, None, None, 3), None)

    assert (row.behind, row.waiting_seconds, freshness_level(row)) == (0, None, None)
    free = replace(row, backlog=replace(row.backlog, open_transaction_offsets=0))
    assert freshness_level(free) == "passed"


@pytest.mark.parametrize(
    ("waits", "limits", "refusal", "level"),
    [
        (30.0, FreshnessLimits(60, 600), None, "passed"),
        (60.0, FreshnessLimits(60, 600), None, "warn"),
        (600.0, FreshnessLimits(60, 600), None, "error"),
        (600.0, None, None, None),
        (None, FreshnessLimits(60, 600), None, None),
        (0.0, FreshnessLimits(60, 600), TopicMissing(cluster="main", topic="files", bootstrap_servers="b:1"), None),
    ],
)
def test_what_waits_is_judged_by_the_limits_alone(
    waits: float | None, limits: FreshnessLimits | None, refusal: KdiError | None, level: str | None
) -> None:
    row = FollowerRow("x", TableKind.ANNOUNCED, 1, waits, limits=limits, refusal=refusal)

    assert freshness_level(row) == level


@pytest.mark.parametrize(
    ("refusal", "command"),
    [
        (StorageUnanswered(lake="s3://x", detail="no answer"), "kdi doctor"),
        (DriverDiffers(theirs="4.1.0", ours="4.2.0"), "kdi driver stop && kdi serve x/y"),
        (TableAlteredByHand(target="x/y", differences=("a",), statements=("ALTER TABLE;",)), "kdi serve x/y --rebuild"),
        (TableAlteredByHand(target="x/y", differences=("a",), statements=()), "kdi serve x/y --rebuild"),
        (
            TableNotMoved(table="x/y", former="/x/z", uri="/x/y", beside=("_ledger",)),
            "mv /x/z_ledger /x/y_ledger && mv /x/z /x/y",
        ),
        (UpstreamMissing(table="gold/y", upstream="silver/x", uri="/silver/x"), ""),
        (SourceMissing(target="x/y", uri="/x"), ""),
        (SourceGone(target="x/y", uri="/x", version=1), "kdi serve x/y"),
        (OvertakenCommit(uri="/x", version=1, operation="DELETE"), "kdi serve x/y"),
    ],
)
def test_the_next_command_after_a_refusal_can_be_typed(refusal: KdiError, command: str) -> None:
    row = FollowerRow("x/y", TableKind.SERVED, refusal=refusal)

    assert row.next_command == command


def test_the_next_command_of_a_stream_is_its_drain_if_the_refusal_knows_none() -> None:
    missing = TopicMissing(cluster="main", topic="t", bootstrap_servers="b:1")
    orders = Stream("t", "a/b", "id bigint", "current_date()", Cluster("main", "localhost:1"))

    assert StreamRow(orders, Backlog("a/b", {}, 0, None, missing, 0), None).next_command == "kdi drain a/b"
