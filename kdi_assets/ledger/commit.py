"""The commit adapter: rows and positions in one Delta transaction. The only module that touches Delta's internals.

Delta's public ``txnAppId``/``txnVersion`` carry one pair per write, and its conflict check does not see a RESTORE or an
overwrite between plan and commit. So Delta's own transaction is called over py4j, its commit is attempted exactly once,
directly behind the version that the plan was checked against, and what came between is judged here.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kdi_assets.errors import Terminal, Transient
from kdi_assets.ledger.damage import StorageFailed, TableUnreadable
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.log import CommitInfo, CommitUnreadable, NotADeltaTable, TableLog
from kdi_assets.ledger.state import partition_id, table_txn_id, topic_txn_id, version_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KNOWN_DELTA = ("4.4.0",)
"""Delta versions whose internals this module was tested with."""

HARMLESS_RETRIES = 5
"""How often a commit steps behind foreign commits that do not concern it before the whole drain is planned again."""

_ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class OvertakenCommit(Transient):
    """Another commit came first, and it changes what this drain was planned on."""

    uri: str
    version: int
    operation: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.uri}: commit {self.version} ({self.operation}) came between plan and commit.",
            "this try committed nothing; its files and dead letters do not count.",
            "plan again; a drain does so by itself",
        )


@dataclass(eq=False, kw_only=True)
class StagedFilesGone(Transient):
    """Files that this try wrote were removed before its commit could name them."""

    uri: str
    files: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.uri}: {len(self.files)} files of this drain were removed before its commit, {self.files[0]} first: "
            "a VACUUM keeps young files for less time than a drain takes.",
            "this try committed nothing; positions stay as they are.",
            "VACUUM with a longer retention (Delta's default is a week); then drain again",
        )


@dataclass(eq=False, kw_only=True)
class TableChangedUnderDrain(Terminal):
    """The table was dropped, or another one lies in its place."""

    uri: str
    planned_id: str
    found_id: str

    def parts(self) -> tuple[str, str, str]:
        found = f"the table there now is {self.found_id}" if self.found_id else "no table is there now"
        return (
            f"{self.uri}: the drain was planned for table {self.planned_id}, and {found}.",
            "this drain committed nothing.",
            "kdi plan, and if it refuses: kdi resolve … adopt",
        )


@dataclass(eq=False, kw_only=True)
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
    """

    actions: Any = None
    files: tuple[str, ...] = ()
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    bytes: int = 0

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())


def stage_rows(spark: SparkSession, rows: DataFrame, uri: str) -> Staged:
    """Write the rows as files of the table, without a version: no reader sees them, VACUUM removes them.

    Args:
        rows: Exactly the table's columns and types, ``date`` among them.
    """
    table = _delta_log(spark, uri)
    transaction = table.startTransaction(_none(spark), _none(spark))
    actions = _write(spark, transaction, table, rows).actions()
    return _staged(actions, date_column=_physical_name("date", transaction.metadata().schemaString()))


def create_table(
    spark: SparkSession, schema: StructType, uri: str, *, properties: Mapping[str, str], entry: LedgerEntry
) -> LedgerEntry:
    """Create the table partitioned by ``date``, its first positions in the same commit: version 0.

    Raises:
        OvertakenCommit: Someone else created it first.
    """
    table = _delta_log(spark, uri)
    transaction = table.startTransaction(_none(spark), _none(spark))
    if transaction.readVersion() >= 0:
        raise OvertakenCommit(uri=uri, version=0, operation="CREATE TABLE")
    metadata = _metadata(spark, schema, properties)
    transaction.updateMetadataForNewTable(metadata)
    entry = replace(entry, version=0, table_id=str(metadata.id()))
    _set_transactions(spark, transaction, entry)
    try:
        _commit_once(spark, transaction, _seq(spark, []), entry, uri)
    except _NotBehind as first:
        raise OvertakenCommit(uri=uri, version=0, operation="CREATE TABLE") from first
    return entry


def commit(
    spark: SparkSession, staged: Staged, uri: str, *, behind: int, expect: Mapping[str, int], entry: LedgerEntry
) -> LedgerEntry:
    """Commit rows and positions directly behind version ``behind``, or behind foreign commits that do not concern them.

    Args:
        behind: The version that the plan was checked against.
        expect: The transaction ids of the ledger at that version; -1 for absent.
        entry: What this commit says of itself; its version is filled in here.

    Returns:
        The entry as committed.

    Raises:
        OvertakenCommit: A ledger commit, RESTORE, overwrite or metadata change came between.
        StagedFilesGone: A VACUUM took the files.
        TableChangedUnderDrain: The table is no longer the one of the plan.
    """
    for _ in range(HARMLESS_RETRIES):
        try:
            return _commit_behind(spark, staged, uri, behind, entry)
        except _NotBehind:
            newest = _newest(uri, entry)
            refuse_if_concerned(newest, after=behind, expect=expect)
            behind = newest.version
    raise OvertakenCommit(uri=uri, version=behind, operation="a stream of foreign commits")


def refuse_if_concerned(newest: TableLog, *, after: int, expect: Mapping[str, int]) -> None:
    """Judge what was committed behind ``after``.

    Raises:
        OvertakenCommit: One of the commits changes what a plan at ``after`` rests on, or cannot be read.
    """
    for version in range(after + 1, newest.version + 1):
        try:
            found = newest.commit(version)
        except CommitUnreadable:
            raise OvertakenCommit(uri=newest.uri, version=version, operation="unreadable") from None
        if found.replaces_rows or found.changes_metadata or expect.keys() & found.transactions.keys():
            raise OvertakenCommit(uri=newest.uri, version=version, operation=found.operation)


def find_attempt(uri: str, *, after: int, attempt_id: str) -> CommitInfo | None:
    """The commit behind ``after`` that carries the attempt id: what came of a commit whose answer was lost."""
    table = TableLog.open(uri)
    if table is None:
        return None
    marker = json.dumps(attempt_id)
    return next((c for c in table.commits(after=after) if marker in c.user_metadata), None)


class _NotBehind(Exception):
    """The version that should follow is taken."""


def _commit_behind(spark: SparkSession, staged: Staged, uri: str, behind: int, entry: LedgerEntry) -> LedgerEntry:
    table = _delta_log(spark, uri)
    snapshot = table.update(False, _none(spark), _none(spark))
    if snapshot.version() != behind:
        raise _NotBehind
    transaction = table.startTransaction(_none(spark), _jvm(spark).scala.Option.apply(snapshot))
    # A table dropped and made again under our feet continues at another number: a commit there would tear its log.
    # The ids need no second look: a commit directly behind the version they were read at finds them as they were.
    if _newest(uri, entry).version != behind:
        raise _NotBehind
    entry = replace(entry, version=behind + 1)
    _set_transactions(spark, transaction, entry)
    actions = staged.actions if staged.actions is not None else _seq(spark, [])
    # Last: a commit that names a file which is not there makes a table that nobody can read.
    _refuse_missing(spark, table, staged, uri)
    _commit_once(spark, transaction, actions, entry, uri)
    return entry


def _commit_once(spark: SparkSession, transaction: Any, actions: Any, entry: LedgerEntry, uri: str) -> None:
    """Send the commit; if its answer is an error or lost, ask the log what became of it."""
    from py4j.protocol import Py4JError, Py4JJavaError

    option, none = _jvm(spark).scala.Option.apply, _none(spark)
    mode = _jvm(spark).org.apache.spark.sql.SaveMode.Append
    operation = getattr(_jvm(spark).org.apache.spark.sql.delta, "DeltaOperations$Write")(
        mode, none, none, option(entry.to_json()), none, none, none, none, none
    )
    try:
        landed = _send(spark, transaction, actions, operation)
    except (Py4JError, OSError) as failed:
        try:
            landed_all_the_same = find_attempt(uri, after=entry.version - 1, attempt_id=entry.attempt_id) is not None
        except (CommitUnreadable, StorageFailed, TableUnreadable):
            raise failed from None  # if it landed, the next look at the ledger finds it
        if landed_all_the_same:
            log.warning("%s: the commit of attempt %s reported an error and landed", uri, entry.attempt_id)
            return
        if isinstance(failed, Py4JJavaError) and _is_conflict(failed):
            raise _NotBehind from failed
        raise
    if landed != entry.version:
        raise AssertionError(f"{uri}: planned as commit {entry.version}, landed as {landed}")


def _send(spark: SparkSession, transaction: Any, actions: Any, operation: Any) -> int:
    """Commit, and answer the version. Delta would step behind commits that its own check lets pass, a RESTORE among
    them: it gets one attempt, and then we judge."""
    spark.conf.set(_ATTEMPTS, "0")
    try:
        return int(transaction.commit(actions, operation))
    finally:
        spark.conf.unset(_ATTEMPTS)


def _refuse_missing(spark: SparkSession, table: Any, staged: Staged, uri: str) -> None:
    path = _jvm(spark).org.apache.hadoop.fs.Path
    storage = table.dataPath().getFileSystem(table.newDeltaHadoopConf())
    missing = [file for file in staged.files if not storage.exists(path(table.dataPath(), file))]
    if missing:
        raise StagedFilesGone(uri=uri, files=tuple(missing))


def _is_conflict(failed: Any) -> bool:
    name, message = str(failed.java_exception.getClass().getName()), str(failed.java_exception.getMessage())
    return "Concurrent" in name or "MetadataChanged" in name or "ProtocolChanged" in name or "MAX_COMMIT" in message


def _newest(uri: str, entry: LedgerEntry) -> TableLog:
    newest: TableLog | None = None
    with suppress(NotADeltaTable):  # dropped, and our files were written into the empty place
        newest = TableLog.open(uri)
    if newest is None or newest.table_id != entry.table_id:
        raise TableChangedUnderDrain(uri=uri, planned_id=entry.table_id, found_id=newest.table_id if newest else "")
    return newest


def _set_transactions(spark: SparkSession, transaction: Any, entry: LedgerEntry) -> None:
    """Every ledger commit sets every id: what it does not set would be stale behind the next RESTORE."""
    ids = {partition_id(entry.app_id, tp.partition): offset - 1 for tp, offset in entry.positions.items()}
    names = (
        version_id(entry.app_id),
        topic_txn_id(entry.app_id, entry.topic_id),
        table_txn_id(entry.app_id, entry.table_id),
    )
    now = _jvm(spark).scala.Option.apply(int(time.time() * 1000))
    for app_id, version in {**ids, **dict.fromkeys(names, entry.version)}.items():
        transaction.updateSetTransaction(app_id, version, now)


def _write(spark: SparkSession, transaction: Any, table: Any, rows: DataFrame) -> Any:
    jvm, none = _jvm(spark), _none(spark)
    delta = jvm.org.apache.spark.sql.delta
    options = delta.DeltaOptions(jvm.PythonUtils.toScalaMap({}), spark._jsparkSession.sessionState().conf())
    command = delta.commands.WriteIntoDelta(
        table,
        jvm.org.apache.spark.sql.SaveMode.Append,
        options,
        # Where the table was dropped meanwhile, Delta takes this for a new one; the commit then finds out.
        _seq(spark, ["date"] if transaction.readVersion() < 0 else []),
        jvm.PythonUtils.toScalaMap({}),
        rows._jdf,
        none,
        none,
        False,
    )
    return command.writeAndReturnCommitData(transaction, spark._jsparkSession, none, False)


def _metadata(spark: SparkSession, schema: StructType, properties: Mapping[str, str]) -> Any:
    """What Delta would make of a first write of no rows, without the job that writes them."""
    jvm = _jvm(spark)
    delta, to_map = jvm.org.apache.spark.sql.delta, jvm.PythonUtils.toScalaMap
    nullable = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()).asNullable()
    return delta.actions.Metadata(
        str(uuid.uuid4()),
        None,
        None,
        delta.actions.Format("parquet", to_map({})),
        nullable.json(),
        _seq(spark, ["date"]),
        delta.DeltaConfigs.validateConfigurations(to_map(dict(properties))),
        jvm.scala.Option.apply(int(time.time() * 1000)),
    )


def _physical_name(column: str, schema: str) -> str:
    """What a column is called in files and their partition values, which column mapping makes another name."""
    metadata: dict[str, Any] = next((f["metadata"] for f in json.loads(schema)["fields"] if f["name"] == column), {})
    return str(metadata.get("delta.columnMapping.physicalName", column))


def _staged(actions: Any, *, date_column: str) -> Staged:
    rows: Counter[date] = Counter()
    files, size = [], 0
    for i in range(actions.size()):
        add = json.loads(actions.apply(i).json()).get("add")
        if add:
            rows[date.fromisoformat(add["partitionValues"][date_column])] += json.loads(add["stats"])["numRecords"]
            files.append(unquote(add["path"]))
            size += add["size"]
    return Staged(actions, tuple(files), rows, size)


def _delta_log(spark: SparkSession, uri: str) -> Any:
    """Delta's own log object, with the session's settings in force."""
    found = str(_jvm(spark).io.delta.package.VERSION())
    if found not in KNOWN_DELTA:
        raise UnknownDelta(found=found)
    # Delta reads its settings from the active session of the JVM's thread, whichever session the data frame is of.
    _jvm(spark).org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    return _jvm(spark).org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, uri)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _none(spark: SparkSession) -> Any:
    return _jvm(spark).scala.Option.apply(None)


def _seq(spark: SparkSession, items: list[Any]) -> Any:
    return _jvm(spark).PythonUtils.toSeq(items)
