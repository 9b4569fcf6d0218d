"""Position commits: they give a table its first positions, or set them back after a RESTORE; a new table is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdi_assets.delta.object_storage import prove_conditional_put
from kdi_assets.delta.transaction import CHECKPOINT_INTERVAL, Staged
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.rules import name
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.streams.drain.plan import PositionCommit
from kdi_assets.streams.drain.takeover import refuse_unsuitable
from kdi_assets.streams.ledger.commit import commit, create_table, next_entry
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.routes import Routes
from kdi_assets.streams.rules.column_comments import commented
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.table.statistics import columns_with_statistics
from kdi_assets.streams.rules.table.table_schema import PROPERTY
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def commit_positions(
    spark: SparkSession,
    positions: PositionCommit,
    stream: Stream,
    lake: str,
    *,
    ledger: LedgerState | None,
    topic: TopicState,
    run_id: str = "",
) -> LedgerEntry:
    """Commit the positions; the first ones of a stream create its table.

    Raises:
        SchemaDisagrees: The table is another writer's, and does not suit the document.
        OvertakenCommit: Another commit came first; take another snapshot.
        PutIfAbsentMissing, OtherLock: On this storage, two drains would overwrite each other's commits.
        StorageRefused, StorageUnanswered: The storage does not take an object.
    """
    prove_conditional_put(stream.root(lake))
    if ledger and ledger.ledger_version is None:
        refuse_unsuitable(stream, lake, ledger.table, spark)
    entry = next_entry(
        stream,
        ledger,
        kind=positions.kind,
        topic_id=topic.topic_id,
        positions=positions.positions,
        bookmarks=positions.bookmarks,
        run_id=run_id,
        **_first_routes(stream, ledger),
    )
    uri = stream.table_uri(lake)
    if ledger is None:
        schema = commented(analyse(stream, spark), stream, spark)
        with spark_failures(stream, "creating the table"):
            return create_table(spark, schema, uri, properties=_properties(stream, schema), entry=entry)
    with spark_failures(stream, "committing positions"):
        return commit(spark, Staged(), uri, read_version=ledger.version, entry=entry)


def _first_routes(stream: Stream, ledger: LedgerState | None) -> dict[str, Any]:
    """The route conditions of the documents, for a table without a ledger commit; later ones carry them on."""
    is_first = ledger is None or ledger.ledger_version is None
    return {"routes": Routes.of(stream)} if is_first and stream.route and stream.route.group else {}


def _properties(stream: Stream, schema: StructType) -> dict[str, str]:
    """The document's table properties, except for those that the ledger and the audit need: the log is the ledger."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableExpiredLogCleanup": "false"}
    if stream.contract.types == "evolve":
        properties[PROPERTY] = "true"
    defaults = {**CHECKPOINT_INTERVAL, **_statistics(stream, schema)}
    return {**defaults, **stream.properties, **properties}


def _statistics(stream: Stream, schema: StructType) -> dict[str, str]:
    """The columns for which Delta keeps least and greatest values of each file: the coordinates first, for audits and
    replays; text only if the document's properties ask for it.

    Text arrives in no order, so its values skip no files, and their comparison takes a tenth of a drain's time.
    """
    if not {"delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols"}.isdisjoint(stream.properties):
        return {}
    paths = columns_with_statistics(stream, schema)
    return {"delta.dataSkippingStatsColumns": ",".join(".".join(name(step) for step in path) for path in paths)}
