"""The fields of a stream's document, which are those of the engine's ``Stream``. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from kdi_assets.documents.model.connections.connections import Cluster, SourceConnection
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.field_types import (
    ColumnPath,
    Days,
    Declared,
    ExpectationName,
    FieldPath,
    NotWritten,
    Owner,
    RescuedColumn,
    Sql,
    TablePath,
    TagName,
    TopicName,
    WrittenAs,
    at_least_a_day,
    not_blank,
    referred,
    start_of,
    wrong,
)
from kdi_assets.documents.model.in_lake import LakeRoot
from kdi_assets.documents.model.limits import Checks, DateWindow, DrainWhen, FreshnessLimits
from kdi_assets.documents.model.message_format import Compression, Format, Json
from kdi_assets.documents.model.message_rules import (
    Contract,
    DeadLetterLimit,
    DeadLetterPayload,
    Expectation,
    Explode,
    FieldUse,
    Mask,
    Route,
    TombstonePolicy,
    explode_of,
    field_use_of,
    mask_of,
    tags_of_column,
)
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.documents.model.variables import VARIABLE
from kdi_assets.documents.model.written_format import WrittenFormat, check_format, format_by_name

Status = Literal["active", "paused", "retired"]
"""``paused``: no sensor starts a run; ``retired``: nothing is ever drained again, the table stays as it is."""

StartPolicy = Literal["earliest", "latest"] | datetime | Mapping[int, int] | Mapping[str, str]
"""Where a stream without positions begins: a word, a time, or the next offset of topic partitions by number. A topic
partition without an offset begins at its earliest. Of Kinesis, checkpoints of shards by their ids."""

REFUSED_TABLE_PROPERTIES = {
    "delta.setTransactionRetentionDuration": "Delta would forget the positions of idle topic partitions",
    "delta.enableExpiredLogCleanup": "Delta would delete ledger entries that were not copied",
    "delta.enableChangeDataFeed": "the change data feed is always on",
}


@dataclass(frozen=True, slots=True)
class References:
    """What the document of a stream refers to; pydantic's validation context.

    Attributes:
        clusters: By name; ``None``: the document of that cluster is wrong.
        connections: The same of Kinesis.
        read_format: Makes the format of a topic's messages from the document's field.
    """

    clusters: Mapping[str, Cluster | None]
    read_format: Callable[[WrittenFormat, str], Format]
    connections: Mapping[str, KinesisRegion | None] = field(default_factory=dict)


def _cluster_named(name: str, info: ValidationInfo) -> Cluster:
    references: References = info.context  # type: ignore[assignment]
    return referred("KafkaCluster", name, references.clusters, right="add one, or set KDI_KAFKA for main")


def _format(written: WrittenFormat, info: ValidationInfo) -> Format:
    check_format(written, info.data)
    references: References = info.context  # type: ignore[assignment]
    return references.read_format(written, info.data.get("topic", ""))


_WrittenMask = Annotated[Mask, WrittenAs(Any, lambda written, info: mask_of(written))]


def _table_property(name: str) -> str:
    if name in REFUSED_TABLE_PROPERTIES:
        raise wrong(f"is refused: {REFUSED_TABLE_PROPERTIES[name]}", "remove the line")
    return name


def _blocking_checks_are_there(checks: Checks, info: ValidationInfo) -> Checks:
    if "fresh" in checks.blocking and info.data.get("freshness") is None:
        raise wrong("blocking names fresh, and freshness is not given", "give freshness as well")
    if "expectations" in checks.blocking:
        said = "blocking names expectations, and that check only warns"
        raise wrong(said, "`then: fail` stops the drain itself")
    if "cpu_seconds_a_day" in checks.blocking:
        raise wrong("blocking names cpu_seconds_a_day, and that check only warns", "a list without it")
    return checks


@dataclass(frozen=True, slots=True)
class Announce(Declared):
    """Where the files of each version of a table are announced."""

    topic: Annotated[TopicName, Field(examples=["web_requests_files"])]
    """The Kafka topic of the announcements; it must exist. How far the table is announced is kept in the topic of this
    name with .announced, which is created compacted."""
    cluster: Annotated[Cluster | None, WrittenAs(str, _cluster_named), Field(examples=["main"])] = None
    """Name of the KafkaCluster document of that topic; by default the stream's cluster."""


def _other_topic(announce: Announce | None, info: ValidationInfo) -> Announce | None:
    if announce and announce.topic == info.data.get("topic") and announce.cluster in (None, info.data.get("cluster")):
        raise wrong("is the topic that this stream drains", "another topic", field="announce.topic")
    return announce


@dataclass(frozen=True, slots=True)
class StreamFields(Declared):
    """A stream: one topic drained into one Delta table."""

    topic: Annotated[TopicName, Field(examples=["web_requests"])]
    """The Kafka topic."""
    table: Annotated[TablePath, Field(examples=["bronze/web_requests"])]
    """The table's path below the lake's root ($KDI_LAKE). It names the stream and its asset. Beside it are the dead
    letters, at the same path with _dead_letters."""
    record_ddl: Annotated[Sql, Field(default="", validation_alias="schema", examples=["id bigint, at timestamp"])]
    """Spark DDL of the message's record. Fields of the message that it does not name are left out. Text and bytes have
    one column, `value` by default; envelope has three; avro and protobuf take no schema; with a JSON Schema it is
    optional."""
    date_expression: Annotated[Sql, Field(validation_alias="date", examples=["to_date(at)"])]
    """Spark SQL for the row's date (UTC), over the record's fields and the struct `kafka` (topic, partition, offset,
    timestamp, timestamp_type, key, headers, tombstone)."""
    cluster: Annotated[
        SourceConnection,
        WrittenAs(str, _cluster_named),
        Field(default="main", validate_default=True, examples=["main"]),
    ]
    """Name of the KafkaCluster document of the topic."""
    columns: Annotated[Mapping[ColumnPath, Sql], Field(examples=[{"host": "parse_url(url, 'HOST')"}])] = field(
        default_factory=dict
    )
    """Further columns: target path (dots nest) to Spark SQL over the same names as `date`."""
    fields: Annotated[
        Mapping[FieldPath, Annotated[FieldUse, BeforeValidator(field_use_of, json_schema_input_type=Any)]],
        Field(examples=[{"kafka": {"rename": "source"}, "meta": "drop"}]),
    ] = field(default_factory=dict)
    """Field of the message (dots nest) to what becomes of it, if not the column of its name and type: drop, text (the
    value as JSON text), or {rename: name}. For fields that cannot be a column as they are, or that nobody needs. Fields
    inside arrays and maps belong to the whole: drop that, or make it text."""
    filter: Annotated[Sql, Field(examples=["method = 'GET' AND kafka.key IS NOT NULL"])] = ""
    """Spark SQL condition over the same names as `date`. A message for which it is not true (false, or null) is
    filtered: counted, and passed over. Where it raises, the message is a dead letter."""
    explode: Annotated[
        Explode | None,
        BeforeValidator(explode_of, json_schema_input_type=dict[str, str] | None),
        Field(examples=[{"item": "items"}]),
    ] = None
    """A row for each element of an array: a name for an element, to Spark SQL of the array over the names that `filter`
    knows. `columns` and `date` know the element by that name. It is also a column, in place of the array's field. A
    message without elements becomes one row, whose element is null."""
    coordinates: Annotated[ColumnPath, Field(examples=["kafka"])] = "kafka"
    """The struct column (dots nest) with topic, partition, offset and timestamp of every row, and with index and count
    if a message may become several rows."""
    date_window: Annotated[DateWindow, Field(examples=[{"start": "2020-01-01", "ahead": "2 days"}])] = DateWindow()
    """Event dates that rows may have. The asset's partitions reach from the first to the last of them."""
    keep_days: Annotated[
        Days | None, AfterValidator(at_least_a_day), Field(validation_alias="keep", examples=["400 days"])
    ] = None
    """How many days (UTC) rows and dead letters are kept. The nightly upkeep removes rows with older dates and dead
    letters of older messages, once every table that is made of the table has consumed them; the ledger records them
    as kept no longer. A late message with such a date becomes a dead letter. Without it, rows are kept for ever."""
    app_id: Annotated[str, not_blank("remove the line: the topic is the default"), Field(examples=["web_requests"])] = (
        ""
    )
    """Prefix of the ledger's transaction ids in the table's log; by default the topic. To take over a table of
    kafka-delta-ingest, give the app id that it used."""
    start: Annotated[
        StartPolicy,
        BeforeValidator(start_of, json_schema_input_type=str | dict[int, int]),
        Field(examples=["earliest"]),
        VARIABLE,
    ] = "earliest"
    """Where a new stream begins: earliest, latest, a timestamp with its zone, or the next offset of each topic
    partition. A topic partition without an offset begins at its earliest. It is resolved once, and later changes have
    no effect. Only offsets above a position are refused: nothing is skipped without a decision."""
    drain_when: Annotated[DrainWhen, Field(examples=[{"backlog_messages": 1000, "lag_seconds": 60}])] = DrainWhen()
    """When the lag sensor starts a run."""
    status: Annotated[Status, Field(examples=["active"])] = "active"
    """active; paused: no sensor starts a run, but a person may; or retired: nothing is drained any more, the table
    stays, and the topic may be deleted."""
    freshness: Annotated[FreshnessLimits | None, Field(examples=[{"warn": "5 minutes", "fail": "30 minutes"}])] = None
    """How old a message may be before it is in the table. It makes a freshness policy in Dagster, and the check
    `fresh`, which also tells an idle topic from a drain that is stuck."""
    checks: Annotated[
        Checks,
        AfterValidator(_blocking_checks_are_there),
        Field(examples=[{"blocking": ["every_offset_accounted_for"], "dead_letter_rate": 0.01}]),
    ] = Checks()
    """Which checks of the table block, the limit of dead letters, and the budget of CPU seconds."""
    tombstones: Annotated[TombstonePolicy, Field(examples=["skip"])] = "skip"
    """What a message without a value becomes. skip: nothing, it is only counted; row: a row in which every field of the
    record is null; dead_letter: a dead letter with the reason tombstone. Expressions know `kafka.tombstone`."""
    mask: Annotated[
        Mapping[ColumnPath, _WrittenMask],
        Field(examples=[{"session_id": {"hash": {"env": "MASK_SECRET"}}}]),
    ] = field(default_factory=dict)
    """Column (dots nest) to what replaces its value: drop, null, {keep_last: 4}, or {hash: {env: NAME}}, with the
    secret in the environment variable NAME. Expressions see the value itself."""
    tags: Annotated[
        Mapping[ColumnPath, Annotated[tuple[TagName, ...], BeforeValidator(tags_of_column, str | tuple[TagName, ...])]],
        Field(examples=[{"session_id": "pii"}]),
    ] = field(default_factory=dict)
    """Column (dots nest) to its tag, or to a list of tags, beside those that a schema gives its fields."""
    mask_tagged: Annotated[
        Mapping[TagName, _WrittenMask],
        Field(examples=[{"pii": {"hash": {"env": "MASK_SECRET"}}}]),
    ] = field(default_factory=dict)
    """Tag to the mask of all columns that have it, also of those that a later version of the schema adds. `mask` of a
    column comes first."""
    dead_letter_payload: Annotated[DeadLetterPayload | None, Field(examples=["mask"])] = None
    """What dead letters keep of a message. keep: all of it; mask: its value as JSON with `mask` applied, or nothing if
    it is not JSON; withhold: no value, key or headers. The default is keep without `mask`. With `mask` it is mask, or
    withhold if the masked values cannot be found in a message."""
    expectations: Annotated[
        Mapping[ExpectationName, Expectation],
        Field(examples=[{"status_is_known": {"sql": "status BETWEEN 100 AND 599", "then": "warn"}}]),
    ] = field(default_factory=dict)
    """What every message that would be a row should meet: name to a condition, and what happens if it is not met.
    Every drain counts, and the check `expectations` shows the last 24 hours."""
    dead_letter_limit: Annotated[DeadLetterLimit, Field(examples=[{"share": 0.1, "count": 1000}])] = DeadLetterLimit()
    """How many dead letters one plan may have. With more, the drain stops before it commits: the document may be wrong,
    and not the messages."""
    contract: Annotated[Contract, Field(examples=[{"new_columns": "discard_row"}])] = Contract()
    """What happens to fields that the record does not have, and to values of other types."""
    rescued: Annotated[RescuedColumn, Field(examples=["rescued"])] = ""
    """A column with the values of a message that did not fit the record, by their paths: a string with a JSON object,
    or with `rescued variant` an object of that type; null if all fitted. For JSON only. Masked columns are not in it;
    undeclared fields are."""
    lake: LakeRoot = ""
    """The root of the lake below which the table lies, with all tables beside it: a URI or the path of a folder, the
    same on every machine. By default $KDI_LAKE."""
    other_lakes: Annotated[tuple[str, ...], NotWritten()] = ()
    renamed_from: Annotated[TablePath, Field(examples=["bronze/old_name"])] = ""
    """The table's path before it was renamed. Nothing is drained until its folders are moved."""
    max_records: Annotated[int, Field(strict=True, ge=1, examples=[5_000_000])] = 5_000_000
    """The most offsets in one plan, gaps included, over all topic partitions. It limits the size of a commit."""
    max_bytes: Annotated[int | None, Field(strict=True, ge=1, examples=[500_000_000])] = None
    """The most bytes of keys and values in one plan, uncompressed. They are estimated from the last drains, and before
    the first drain from a few messages; the plan itself has exact offsets."""
    target_file_size: Annotated[int | None, Field(strict=True, ge=1_048_576, examples=[134_217_728])] = None
    """Bytes of the Parquet files that a drain writes: rows of one date are collected up to this size, and larger files
    are split. Without it, each task writes a file for each date. Upkeep compacts to this size, by default 128 MiB."""
    upkeep: Annotated[Upkeep, Field(examples=[{"small_files": 50, "cluster_by": ["session_id"]}])] = Upkeep()
    """How files are compacted, and whether the scheduled upkeep includes the table."""
    properties: Annotated[
        Mapping[Annotated[str, AfterValidator(_table_property)], str],
        Field(examples=[{"delta.deletedFileRetentionDuration": "interval 14 days"}]),
    ] = field(default_factory=dict)
    """Delta table properties, set when the table is created."""
    description: Annotated[str, Field(examples=["One row per request"])] = ""
    """What the table holds, for its readers."""
    owners: Annotated[tuple[Owner, ...], Field(examples=[["team:web"]])] = ()
    """Teams (team:name) and mail addresses that own the table."""
    compression: Annotated[Compression, Field(examples=["gzip"])] = "none"
    """The compression of each value by the producer: none, gzip or zstd."""
    route: Annotated[Route | None, Field(examples=[{"when": "kind = 'order'", "rest": "dead_letters"}])] = None
    """Which messages of a shared topic belong to this stream. One read of the topic then feeds all of its streams.
    Without it, all messages belong to the stream."""
    announce: Annotated[
        Announce | None, AfterValidator(_other_topic), Field(examples=[{"topic": "web_requests_files"}])
    ] = None
    """A topic in which a message names the files that each version of the table adds and removes, exactly once, for
    consumers that read files."""
    # The last field: its validation needs the other fields, and pydantic knows only those that come before.
    format: Annotated[
        Format,
        WrittenAs(Annotated[WrittenFormat, BeforeValidator(format_by_name, str | WrittenFormat)], _format),
        Field(validate_default=True, examples=["json", {"csv": {"delimiter": ";"}}]),
    ] = Json()
    """What a message's value is: json, text, bytes, envelope, csv, avro or protobuf, or the names of files; with its
    own fields, {csv: {delimiter: ;}}."""
