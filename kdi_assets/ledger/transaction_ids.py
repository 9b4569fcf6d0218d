"""Transaction ids of a ledger: what they are called, and what their versions say."""

from __future__ import annotations

from collections.abc import Mapping

from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.stream.stream import Stream, TopicPartition

RETIRED = -1
"""Position of a topic partition that is gone with its topic: an id cannot be removed from the log, so it says so."""


def read_transactions(log: TableLog, stream: Stream, topic_partitions: int) -> dict[str, int]:
    """The ids of the stream's ledger that are present at the log's version, as they stand."""
    app_id = stream.app_id
    found = {version_id(app_id): log.transaction(version_id(app_id))}
    partition = 0
    while True:
        present = log.transaction(partition_id(app_id, partition))
        if present is None and partition >= topic_partitions:
            break  # numbers have no holes: behind the broker's last, the first absent one ends the search
        found[partition_id(app_id, partition)] = present
        partition += 1
    return {app: version for app, version in found.items() if version is not None}


def positions_in(transactions: Mapping[str, int], stream: Stream) -> dict[TopicPartition, int]:
    """The positions that ids stand for: the next offset, where the id's version is the last one covered."""
    return {tp: position for tp, position in all_positions_in(transactions, stream).items() if position != RETIRED}


def all_positions_in(transactions: Mapping[str, int], stream: Stream) -> dict[TopicPartition, int]:
    """The same, with those that are ``RETIRED``."""
    prefix = f"{stream.app_id}-"
    return {
        TopicPartition(stream.topic, int(app.removeprefix(prefix))): last + 1
        for app, last in transactions.items()
        if app.startswith(prefix)
    }


def partition_id(app_id: str, partition: int) -> str:
    """Transaction id of a topic partition, kafka-delta-ingest's; its version is the last offset covered, or -1."""
    return f"{app_id}-{partition}"


def version_id(app_id: str) -> str:
    """Transaction id whose version is the table version of the newest ledger commit."""
    return f"{app_id}/version"


def topic_txn_id(app_id: str, topic_id: str) -> str:
    """Transaction id that names the topic; it holds while its version is that of ``version_id``."""
    return f"{app_id}|topic|{topic_id}"


def table_txn_id(app_id: str, table_id: str) -> str:
    """Transaction id that names the table; it holds while its version is that of ``version_id``."""
    return f"{app_id}|table|{table_id}"
