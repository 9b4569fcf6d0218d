"""Topics: of which topics the rows of a table are, passed on from table to table by transaction ids of its commits.

The offsets of a topic that was made again begin at 0 again, so they do not order rows of both topics. A row does not
show of which topic it is; the log of a stream's table does, and so do those of the tables that are made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.delta.files import TableAt
from kdi_assets.delta.internals import forget_log
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import topic_txn_id, topics_of
from kdi_assets.follow.upstream import UpstreamChanges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TopicsOfRows:
    """The topics that rows come from.

    Attributes:
        names: Transaction ids that name topics, to set by the next commit; those of earlier commits stay in the log.
        most: The most topics of one stream: several after its topic was made again.
    """

    names: frozenset[str] = frozenset()
    most: int = 0

    def transactions(self, consumer: str, version: int) -> dict[str, int]:
        """The transaction ids of a commit with this version."""
        return {**dict.fromkeys(sorted(self.names), version), topics_id(consumer): self.most}


def topics_id(consumer: str) -> str:
    """Transaction id whose version is the most topics of one stream; absent if an earlier release made the rows."""
    return f"{consumer}|topics"


def known_topics(log: TableLog, consumer: str, upstreams: Iterable[UpstreamChanges]) -> TopicsOfRows | None:
    """The topics of the rows and of what is new, without a JVM; ``None``: only ``read_topics`` finds them.

    Args:
        log: The table that consumes.
    """
    most = log.transaction_version(topics_id(consumer))
    if most is None:
        return None
    for upstream in upstreams:
        if upstream.topics is None or any(log.transaction_version(name) is None for name in upstream.topics):
            return None
    return TopicsOfRows(most=most)


def read_topics(spark: SparkSession, upstreams: Sequence[UpstreamChanges]) -> TopicsOfRows:
    """The topics of all upstream rows, by the transaction ids of their tables."""
    names, most = set[str](), 0
    for upstream in upstreams:
        ids = _transaction_ids(spark, upstream)
        found = topics_of(ids)
        names |= {topic_txn_id(app_id, topic) for app_id, topics in found.items() for topic in topics}
        counted = {name for name in ids if name.endswith(topics_id(""))}
        # Of a refined table, whose log also names topics of rows that it has no longer.
        log = TableLog.existing(upstream.uri, upstream.version) if counted else None
        of_rows = [log.transaction_version(name) or 0 for name in counted] if log else map(len, found.values())
        most = max(most, *of_rows, 0)
    return TopicsOfRows(frozenset(names), most)


def _transaction_ids(spark: SparkSession, upstream: UpstreamChanges) -> frozenset[str]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return TableAt.open(spark, upstream.uri, upstream.version).transaction_ids
    except (Py4JError, PySparkException):  # a clean-up has deleted commits that Delta remembers
        forget_log(spark, upstream.uri)
        return TableAt.open(spark, upstream.uri, upstream.version).transaction_ids
