"""Delta's internals, called over py4j: its log, snapshots, transactions and actions. The only module that does so.

Delta's public interface cannot do what a ledger commit does: rows, several transaction ids and one attempt. Delta may
change its internals without notice; ``tests/spark/test_internals.py`` asks a session for every name that is used here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.dictionaries import without_dictionary
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.runtime.spark_internals import (
    frame_of,
    jvm_frame,
    jvm_session,
    jvm_type,
    jvm_view,
    listed,
    scala_map,
    scala_option,
    scala_seq,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BIN_MIB = "spark.databricks.delta.optimizeWrite.binSize"
_ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"


def delta_version(spark: SparkSession) -> str:
    return str(jvm_view(spark).io.delta.package.VERSION())


def log_of(spark: SparkSession, uri: str) -> Any:
    """Delta's log of a table, with the session's settings in force."""
    # Delta reads its settings from the active session of the JVM's thread, not from the session of the data frame.
    jvm_view(spark).org.apache.spark.sql.SparkSession.setActiveSession(jvm_session(spark))
    return jvm_view(spark).org.apache.spark.sql.delta.DeltaLog.forTable(jvm_session(spark), uri)


def log_with_own_writer(spark: SparkSession, log: Any) -> Any:
    """The log for transactions whose data files the kernel writes: the same bytes as Delta's, for less CPU."""
    return jvm_view(spark).kdi.parquet.WritingLog(log)


def latest_snapshot(spark: SparkSession, log: Any) -> Any:
    """The table's newest snapshot."""
    nothing = scala_option(spark)
    return log.update(False, nothing, nothing)


def snapshot_at(spark: SparkSession, log: Any, version: int) -> Any:
    """The table at a version that its log still has."""
    nothing = scala_option(spark)
    return log.getSnapshotAt(version, nothing, nothing, False)


def snapshot_with_metadata(spark: SparkSession, log: Any, snapshot: Any, metadata: Any) -> Any:
    """A snapshot without files, as the table will be with other metadata."""
    protocol = scala_option(spark, snapshot.protocol())
    snapshots = jvm_view(spark).org.apache.spark.sql.delta
    return snapshots.DummySnapshot(snapshot.logPath(), log, metadata, scala_option(spark), protocol)


def version_of(snapshot: Any) -> int:
    return int(snapshot.version())


def forget_log(spark: SparkSession, uri: str) -> None:
    """Let Delta read the log of a table anew; it remembers which of its files there were."""
    jvm = jvm_view(spark)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(jvm_session(spark), jvm.org.apache.hadoop.fs.Path(uri))


def transaction_ids(snapshot: Any) -> frozenset[str]:
    """All transaction ids that the log knows."""
    return frozenset(str(txn.appId()) for txn in listed(snapshot.setTransactions()))


def metadata_of(snapshot: Any) -> Any:
    """The metadata of a snapshot or a transaction."""
    return snapshot.metadata()


def schema_text(metadata: Any) -> str:
    """The table's schema as Delta's JSON."""
    return str(metadata.schemaString())


def partition_columns(metadata: Any) -> list[str]:
    return [str(column) for column in listed(metadata.partitionColumns())]


def id_of(metadata: Any) -> str:
    return str(metadata.id())


def has_change_feed(spark: SparkSession, metadata: Any) -> bool:
    reader = jvm_view(spark).org.apache.spark.sql.delta.commands.cdc.CDCReader
    return bool(reader.isCDCEnabledOnTable(metadata, jvm_session(spark)))


def new_metadata(
    spark: SparkSession, table_id: str, schema: StructType, partition_by: Sequence[str], properties: Mapping[str, str]
) -> Any:
    """The metadata that Delta would make for a first write without rows; this needs no Spark job."""
    configs = jvm_view(spark).org.apache.spark.sql.delta.DeltaConfigs
    configuration = configs.validateConfigurations(scala_map(spark, dict(properties)))
    created = scala_option(spark, int(time.time() * 1000))
    return _metadata(spark, table_id, schema, partition_by, configuration, created)


def metadata_like(spark: SparkSession, metadata: Any, schema: StructType, partition_by: Sequence[str]) -> Any:
    """The metadata with other columns or partitions; properties and id stay."""
    configuration, created = metadata.configuration(), metadata.createdTime()
    return _metadata(spark, id_of(metadata), schema, partition_by, configuration, created)


def _metadata(
    spark: SparkSession,
    table_id: str,
    schema: StructType,
    partition_by: Sequence[str],
    configuration: Any,
    created: Any,
) -> Any:
    actions = jvm_view(spark).org.apache.spark.sql.delta.actions
    nullable = jvm_type(spark, schema).asNullable()
    columns, parquet = scala_seq(spark, list(partition_by)), actions.Format("parquet", scala_map(spark, {}))
    return actions.Metadata(table_id, None, None, parquet, nullable.json(), columns, configuration, created)


def start_transaction(spark: SparkSession, log: Any, snapshot: Any = None) -> Any:
    """A transaction on a snapshot, by default the newest."""
    return log.startTransaction(scala_option(spark), scala_option(spark, snapshot))


def read_version(transaction: Any) -> int:
    """The version that a transaction is based on; negative if there is no table."""
    return int(transaction.readVersion())


def set_metadata(transaction: Any, metadata: Any) -> None:
    transaction.updateMetadata(metadata, False)


def set_first_metadata(transaction: Any, metadata: Any) -> None:
    """Set the metadata of a table that the transaction creates."""
    transaction.updateMetadataForNewTable(metadata)


def set_transactions(spark: SparkSession, transaction: Any, versions: Mapping[str, int]) -> None:
    """Set the versions of transaction ids."""
    now = scala_option(spark, int(time.time() * 1000))
    for txn, version in versions.items():
        transaction.updateSetTransaction(txn, version, now)


def commit_actions(spark: SparkSession, transaction: Any, actions: Any, user_metadata: str) -> int:
    """Commit actions, ``None`` for none, and return the version.

    Delta gets a single attempt. It would retry after commits that its own conflict check allows, also after a RESTORE.
    """
    nothing, jvm = scala_option(spark), jvm_view(spark)
    mode, metadata = jvm.org.apache.spark.sql.SaveMode.Append, scala_option(spark, user_metadata)
    write = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
    if actions is None:
        actions = scala_seq(spark, [])
    operation = write(mode, nothing, nothing, metadata, nothing, nothing, nothing, nothing, nothing)
    with changed_settings(spark, {_ATTEMPTS: "0"}):
        return int(transaction.commit(actions, operation))


def is_conflict(failed: Any) -> bool:
    """Whether a commit failed because of another one."""
    name, message = str(failed.java_exception.getClass().getName()), str(failed.java_exception.getMessage())
    return "Concurrent" in name or "MetadataChanged" in name or "ProtocolChanged" in name or "MAX_COMMIT" in message


def append_files(
    spark: SparkSession,
    transaction: Any,
    log: Any,
    rows: DataFrame,
    *,
    options: Mapping[str, str],
    bin_mib: int | None = None,
    distinct: Collection[str] = (),
) -> Any:
    """Write rows as an append does, and return the actions, which are not committed; may change the metadata.

    Args:
        options: Delta's, of a write.
        bin_mib: The size of the bins by which Delta shuffles rows before the write.
        distinct: Columns that are written without a dictionary.
    """
    jvm, nothing = jvm_view(spark), scala_option(spark)
    command = jvm.org.apache.spark.sql.delta.commands.WriteIntoDelta(
        log,
        jvm.org.apache.spark.sql.SaveMode.Append,
        _options(spark, options),
        # If the table was dropped meanwhile, Delta takes this for a new one; the commit then notices it.
        scala_seq(spark, ["date"] if read_version(transaction) < 0 else []),
        scala_map(spark, {}),
        jvm_frame(rows),
        nothing,
        nothing,
        False,
    )
    settings = without_dictionary(distinct) | ({} if bin_mib is None else {_BIN_MIB: str(bin_mib)})
    with changed_settings(spark, settings):
        return command.writeAndReturnCommitData(transaction, jvm_session(spark), nothing, False).actions()


def write_files(spark: SparkSession, transaction: Any, rows: DataFrame, *, options: Mapping[str, str]) -> Any:
    """Write rows, and those of the change feed, and return the actions, which are not committed."""
    given = scala_option(spark, _options(spark, options))
    return transaction.writeFiles(jvm_frame(rows), given, scala_seq(spark, []))


def _options(spark: SparkSession, options: Mapping[str, str]) -> Any:
    """Delta's options of a write, in addition to the session's settings."""
    delta, settings = jvm_view(spark).org.apache.spark.sql.delta, jvm_session(spark).sessionState().conf()
    return delta.DeltaOptions(scala_map(spark, dict(options)), settings)


def missing_files(spark: SparkSession, log: Any, files: Iterable[str]) -> tuple[str, ...]:
    """Those that do not exist, of files named by their paths from the table's folder."""
    path = jvm_view(spark).org.apache.hadoop.fs.Path
    storage = log.dataPath().getFileSystem(log.newDeltaHadoopConf())
    return tuple(file for file in files if not storage.exists(path(log.dataPath(), file)))


def files_where(snapshot: Any, condition: str) -> tuple[Any, ...]:
    """The actions of files that meet a condition over the columns of an ``add`` action, by a Spark job."""
    return tuple(snapshot.allFiles().where(condition).collectAsList())


def files_from_json(spark: SparkSession, adds: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The actions of files, of ``add`` actions as the log has them."""
    action = jvm_view(spark).org.apache.spark.sql.delta.actions.Action
    return [action.fromJson(json.dumps({"add": add})) for add in adds]


def as_json(action: Any) -> dict[str, Any]:
    """An action as the log has it."""
    found: dict[str, Any] = json.loads(action.json())
    return found


def path_of(add: Any) -> str:
    """The path of a file, as the log names it."""
    return str(add.path())


def bytes_of(add: Any) -> int:
    return int(add.size())


def row_count(add: Any) -> int | None:
    """The rows of a file by its statistics; ``None`` without them."""
    rows = add.numLogicalRecords()
    return int(rows.get()) if rows.isDefined() else None


def removals(adds: Collection[Any]) -> list[Any]:
    """The actions that remove files."""
    now = int(time.time() * 1000)
    return [add.removeWithTimestamp(now, True) for add in adds]


def rows_of_files(spark: SparkSession, log: Any, snapshot: Any, adds: Collection[Any]) -> DataFrame:
    """The rows of some files, which need not be in the snapshot."""
    files = scala_seq(spark, list(adds))
    return frame_of(spark, log.createDataFrame(snapshot, files, False, scala_option(spark)))
