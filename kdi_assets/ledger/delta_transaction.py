"""Delta's own transaction, called over py4j. With ``ledger.rewrite`` the only module that touches Delta's internals.

Delta's public ``txnAppId``/``txnVersion`` carry one pair per write; a ledger commit carries one for each topic
partition and three more.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kdi_assets.errors import Terminal
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.transaction_ids import partition_id, table_txn_id, topic_txn_id, version_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KNOWN_DELTA = ("4.4.0",)
"""Delta versions whose internals this module was tested with."""

CHECKPOINT_INTERVAL = {"delta.checkpointInterval": "30"}
"""Of the tables that we make. A checkpoint costs as much as two small drains; Delta's own interval is 10 commits."""

_BIN_MIB = "spark.databricks.delta.optimizeWrite.binSize"
_ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"


class UnknownDelta(Terminal):
    """The session's Delta is none that the commit adapter was tested with."""

    found: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"Delta {self.found} is loaded; the commit adapter knows {', '.join(KNOWN_DELTA)}.",
            "nothing was written.",
            "kdi jars   (fetches the locked versions)",
        )


@dataclass(frozen=True, slots=True)
class Staged:
    """Files written to a table's folder that no version names yet; an empty one stands for a commit without rows.

    Attributes:
        actions: Delta's actions, a Scala sequence in the driver's JVM; ``None`` for no rows.
        files: Where the files lie, below the table.
        rows_by_date: Rows in the files, from the writer's own statistics.
        bytes: Size of the files.
        metadata: What the table is to be with these files, Delta's action; ``None``: what it is.
        replaces: Files of the table that go with the commit, as its log names them.
        removed_by_date: Rows that go with them, and are not among those written anew.
    """

    actions: Any = None
    files: tuple[str, ...] = ()
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    bytes: int = 0
    metadata: Any = None
    replaces: frozenset[str] = frozenset()
    removed_by_date: Mapping[date, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())


@dataclass(frozen=True, slots=True)
class FileSize:
    """How large the files of a write are to be.

    Attributes:
        together: Tasks hand what they have of one date to each other up to so many bytes, as rows take on that way;
            ``None``: each task writes its own.
        rows: At most so many in a file; ``None``: as many as there are.
    """

    together: int | None = None
    rows: int | None = None


AS_IT_COMES = FileSize()
"""A file for each task and date."""


def stage_rows(
    spark: SparkSession, rows: DataFrame, uri: str, *, files: FileSize = AS_IT_COMES, widening: bool = False
) -> Staged:
    """Write the rows as files of the table, without a version: no reader sees them, VACUUM removes them.

    Args:
        rows: Exactly the table's columns and types, ``date`` among them.
        widening: Whether there may be columns, and fields of structs, that the table does not have yet: the commit of
            the files is to add them.
    """
    table = delta_log(spark, uri)
    transaction = start_transaction(spark, table)
    before = transaction.metadata()
    actions = _write(spark, transaction, table, rows, files, widening=widening).actions()
    after = transaction.metadata()
    staged = staged_of(actions, date_column=physical_name("date", after.schemaString()))
    return replace(staged, metadata=after) if widening and not after.equals(before) else staged


def latest(spark: SparkSession, table: Any) -> Any:
    """The table's newest snapshot."""
    return table.update(False, scala_none(spark), scala_none(spark))


def start_transaction(spark: SparkSession, table: Any, snapshot: Any = None) -> Any:
    """A transaction on a snapshot, by default the newest."""
    return table.startTransaction(scala_none(spark), jvm_of(spark).scala.Option.apply(snapshot))


def send(spark: SparkSession, transaction: Any, staged: Staged, user_metadata: str) -> int:
    """Commit the staged files, and answer the version.

    Delta would step behind commits that its own check lets pass, a RESTORE among them: it gets one attempt, and then we
    judge.

    Args:
        user_metadata: What the commit says of itself in the log.
    """
    nothing, jvm = scala_none(spark), jvm_of(spark)
    mode, told = jvm.org.apache.spark.sql.SaveMode.Append, jvm.scala.Option.apply(user_metadata)
    write = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
    actions = staged.actions if staged.actions is not None else scala_seq(spark, [])
    operation = write(mode, nothing, nothing, told, nothing, nothing, nothing, nothing, nothing)
    with _setting(spark, _ATTEMPTS, "0"):
        return int(transaction.commit(actions, operation))


def missing_files(spark: SparkSession, table: Any, staged: Staged) -> tuple[str, ...]:
    """The staged files that are no longer there."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path
    storage = table.dataPath().getFileSystem(table.newDeltaHadoopConf())
    return tuple(file for file in staged.files if not storage.exists(path(table.dataPath(), file)))


def is_conflict(failed: Any) -> bool:
    name, message = str(failed.java_exception.getClass().getName()), str(failed.java_exception.getMessage())
    return "Concurrent" in name or "MetadataChanged" in name or "ProtocolChanged" in name or "MAX_COMMIT" in message


def set_transactions(spark: SparkSession, transaction: Any, entry: LedgerEntry) -> None:
    """Every ledger commit sets every id: what it does not set would be stale behind the next RESTORE."""
    app_id = entry.app_id
    ids = {partition_id(app_id, tp.partition): offset - 1 for tp, offset in entry.positions.items()}
    names = (version_id(app_id), topic_txn_id(app_id, entry.topic_id), table_txn_id(app_id, entry.table_id))
    now = jvm_of(spark).scala.Option.apply(int(time.time() * 1000))
    for txn, version in {**ids, **dict.fromkeys(names, entry.version)}.items():
        transaction.updateSetTransaction(txn, version, now)


def _write(
    spark: SparkSession, transaction: Any, table: Any, rows: DataFrame, files: FileSize, *, widening: bool
) -> Any:
    jvm, nothing = jvm_of(spark), scala_none(spark)
    delta = jvm.org.apache.spark.sql.delta
    told = {} if files.together is None else {"optimizeWrite": "true"}
    told |= {"mergeSchema": "true"} if widening else {}
    told |= {} if files.rows is None else {"maxRecordsPerFile": str(files.rows)}
    command = delta.commands.WriteIntoDelta(
        table,
        jvm.org.apache.spark.sql.SaveMode.Append,
        delta_options(spark, told),
        # Where the table was dropped meanwhile, Delta takes this for a new one; the commit then finds out.
        scala_seq(spark, ["date"] if transaction.readVersion() < 0 else []),
        jvm.PythonUtils.toScalaMap({}),
        rows._jdf,
        nothing,
        nothing,
        False,
    )
    with nullcontext() if files.together is None else _setting(spark, _BIN_MIB, str(max(1, files.together >> 20))):
        return command.writeAndReturnCommitData(transaction, spark._jsparkSession, nothing, False)


def delta_options(spark: SparkSession, told: Mapping[str, str]) -> Any:
    """Options of a write, beside those of the session."""
    jvm = jvm_of(spark)
    options = jvm.PythonUtils.toScalaMap(dict(told))
    return jvm.org.apache.spark.sql.delta.DeltaOptions(options, spark._jsparkSession.sessionState().conf())


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def new_metadata(spark: SparkSession, schema: StructType, properties: Mapping[str, str]) -> Any:
    """What Delta would make of a first write of no rows, without the job that writes them."""
    jvm = jvm_of(spark)
    delta, to_map = jvm.org.apache.spark.sql.delta, jvm.PythonUtils.toScalaMap
    nullable = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()).asNullable()
    return delta.actions.Metadata(
        str(uuid.uuid4()),
        None,
        None,
        delta.actions.Format("parquet", to_map({})),
        nullable.json(),
        scala_seq(spark, ["date"]),
        delta.DeltaConfigs.validateConfigurations(to_map(dict(properties))),
        jvm.scala.Option.apply(int(time.time() * 1000)),
    )


def physical_name(column: str, schema: str) -> str:
    """What a column is called in files and their partition values, which column mapping makes another name."""
    metadata: dict[str, Any] = next((f["metadata"] for f in json.loads(schema)["fields"] if f["name"] == column), {})
    return str(metadata.get("delta.columnMapping.physicalName", column))


def staged_of(actions: Any, *, date_column: str) -> Staged:
    """What Delta's writer says of the files that it wrote, those of the change feed included."""
    rows: Counter[date] = Counter()
    files, size = [], 0
    for i in range(actions.size()):
        action = json.loads(actions.apply(i).json())
        if add := action.get("add"):
            rows[date.fromisoformat(add["partitionValues"][date_column])] += json.loads(add["stats"])["numRecords"]
            size += add["size"]
        if file := add or action.get("cdc"):
            files.append(unquote(file["path"]))
    return Staged(actions, tuple(files), rows, size)


def delta_log(spark: SparkSession, uri: str) -> Any:
    """Delta's own log object, with the session's settings in force."""
    found = str(jvm_of(spark).io.delta.package.VERSION())
    if found not in KNOWN_DELTA:
        raise UnknownDelta(found=found)
    # Delta reads its settings from the active session of the JVM's thread, whichever session the data frame is of.
    jvm_of(spark).org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    return jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, uri)


def jvm_of(spark: SparkSession) -> Any:
    return spark._jvm


def scala_none(spark: SparkSession) -> Any:
    return jvm_of(spark).scala.Option.apply(None)


def scala_seq(spark: SparkSession, items: list[Any]) -> Any:
    return jvm_of(spark).PythonUtils.toSeq(items)
