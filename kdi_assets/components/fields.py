"""The fields of a stream's document, for the component and for the reader alike; pydantic ends here.

Every value is taken as written. There are no templates: SQL may hold braces, and the command line, which does not
load Dagster, must see what the code location sees.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kdi_assets.components import checks, format_fields
from kdi_assets.components.check_fields import ChecksFields, FreshnessFields
from kdi_assets.components.format_fields import FormatFields
from kdi_assets.components.judging_fields import ContractFields, DeadLetterLimitFields, ExpectationFields
from kdi_assets.components.route_fields import RouteFields
from kdi_assets.components.strict import Fields
from kdi_assets.components.time_fields import DateWindowFields, DrainWhenFields
from kdi_assets.message_format import Compression, SchemaRegistry
from kdi_assets.message_rules import DeadLetterPayload, Explode, Mask, TombstonePolicy
from kdi_assets.stream import DateWindow, KafkaCluster, StartPolicy, Status, Stream


class TopicTableFields(Fields):
    """A stream: one topic drained into one Delta table."""

    topic: Annotated[str, AfterValidator(checks.topic)] = Field(
        description="The Kafka topic.", examples=["web_requests"]
    )
    table: Annotated[str, AfterValidator(checks.table)] = Field(
        description="The table's path below the lake's root ($KDI_LAKE). It names the stream and its asset; dead"
        " letters lie beside it, at the same path with _dead_letters.",
        examples=["bronze/web_requests"],
    )
    message_format: Annotated[FormatFields, BeforeValidator(format_fields.named)] = Field(
        default=FormatFields(),
        alias="format",
        description="What a message's value is: json, text, bytes, envelope, csv, avro or protobuf; with its own"
        " fields, {csv: {delimiter: ;}}.",
        examples=["json", {"csv": {"delimiter": ";"}}],
    )
    compression: Annotated[str, AfterValidator(format_fields.compression)] = Field(
        default="none",
        description="What the producer compressed each value with: none, gzip or zstd.",
        examples=["gzip"],
    )
    ddl: Annotated[str, AfterValidator(format_fields.schema_fits)] = Field(
        default="",
        validate_default=True,
        alias="schema",
        description="Spark DDL of the message's record. Fields of the message that it does not name are left out. For"
        " text and bytes one column, `value` by default; for envelope three; for avro and protobuf none; with a JSON"
        " Schema it may be left out.",
        examples=["id bigint, at timestamp"],
    )
    date_expression: Annotated[str, AfterValidator(checks.sql)] = Field(
        alias="date",
        description="Spark SQL for the row's date (UTC), over the record's fields and the struct `kafka` (topic,"
        " partition, offset, timestamp, timestamp_type, key, headers, tombstone).",
        examples=["to_date(at)"],
    )
    cluster: str = Field(
        default="main", description="Name of the KafkaCluster document of the topic.", examples=["main"]
    )
    columns: dict[Annotated[str, AfterValidator(checks.column)], Annotated[str, AfterValidator(checks.sql)]] = Field(
        default={},
        description="Further columns: target path (dots nest) to Spark SQL over the same names as `date`.",
        examples=[{"host": "parse_url(url, 'HOST')"}],
    )
    filter_sql: Annotated[str, AfterValidator(checks.sql)] = Field(
        default="",
        alias="filter",
        description="Spark SQL condition over the same names as `date`. A message for which it is not true (false, or"
        " null) is filtered: counted, and passed over. Where it raises, the message is a dead letter.",
        examples=["method = 'GET' AND kafka.key IS NOT NULL"],
    )
    route: RouteFields | None = Field(
        default=None,
        description="Which messages of a topic that several streams share are this one's; one pass over the topic then"
        " feeds all of them. Without it, every message is.",
        examples=[{"when": "kind = 'order'"}],
    )
    explode: Annotated[
        dict[str, str] | None, BeforeValidator(checks.explode), AfterValidator(format_fields.taken_apart_once)
    ] = Field(
        default=None,
        description="A row for each element of an array: a name for one of them, to Spark SQL of the array over the"
        " names that `filter` knows. `columns` and `date` see the element under that name, and it is a column, in the"
        " place of the field that the array was. A message without elements is one row, whose element is null.",
        examples=[{"item": "items"}],
    )
    coordinates: Annotated[str, AfterValidator(checks.column)] = Field(
        default="kafka",
        description="The struct column (dots nest) that keeps topic, partition, offset and timestamp of every row, and"
        " its index and count where a message may become several.",
        examples=["kafka"],
    )
    date_window: DateWindowFields = Field(
        default=DateWindowFields(),
        description="Event dates that rows may have; the asset's partitions reach from its first to its last.",
        examples=[{"start": "2020-01-01", "ahead": "2 days"}],
    )
    app_id: Annotated[str, AfterValidator(checks.app_id)] = Field(
        default="",
        description="Prefix of the ledger's transaction ids in the table's log; the topic by default. A table of"
        " kafka-delta-ingest is taken over by giving the app id it was fed with.",
        examples=["web_requests"],
    )
    start: Annotated[str | dict[int, int], BeforeValidator(checks.start)] = Field(
        default="earliest",
        description="Where a new stream begins: earliest, latest, a timestamp with its zone, or the next offset of each"
        " topic partition; one that is not named begins at its earliest. Resolved once; later changes have no effect,"
        " but for offsets above a position, which are refused: nothing is skipped without a decision.",
        examples=["earliest"],
    )
    drain_when: DrainWhenFields = Field(
        default=DrainWhenFields(),
        description="When the lag sensor starts a run.",
        examples=[{"backlog_messages": 1000, "lag_seconds": 60}],
    )
    status: Annotated[str, AfterValidator(checks.status)] = Field(
        default="active",
        description="active; paused: no sensor starts a run, a person may; or retired: nothing is drained any more, the"
        " table stays as it is and the topic may go.",
        examples=["active"],
    )
    freshness: FreshnessFields | None = Field(
        default=None,
        description="How old a message may get before it is in the table: a freshness policy of Dagster's, and the"
        " check `fresh`, which knows an idle topic from a stuck one.",
        examples=[{"warn": "5 minutes", "fail": "30 minutes"}],
    )
    asset_checks: ChecksFields = Field(
        default=ChecksFields(),
        alias="checks",
        description="The checks of the table: which of them block, and the limit of dead letters.",
        examples=[{"blocking": ["every_offset_accounted_for"], "dead_letter_rate": 0.01}],
    )
    tombstones: Annotated[TombstonePolicy, BeforeValidator(checks.tombstones)] = Field(
        default="skip",
        description="What a message without a value becomes: skip: nothing, and it is counted; row: a row in which"
        " every field of the record is null; dead_letter: one, with the reason tombstone. Expressions know"
        " `kafka.tombstone`.",
        examples=["skip"],
    )
    mask: dict[Annotated[str, AfterValidator(checks.column)], Annotated[Mask, BeforeValidator(checks.mask)]] = Field(
        default={},
        description="Column (dots nest) to what stands there in place of its value: drop, null, {keep_last: 4}, or"
        " {hash: {env: NAME}}, with the secret in the environment variable NAME. Expressions see the value.",
        examples=[{"session_id": {"hash": {"env": "MASK_SECRET"}}}],
    )
    dead_letter_payload: Annotated[DeadLetterPayload | None, BeforeValidator(checks.dead_letter_payload)] = Field(
        default=None,
        description="What dead letters hold of a message: keep: all of it; mask: its value as JSON with `mask` applied,"
        " and none that is no such JSON; withhold: neither value nor key nor headers. By default all of it, or, if"
        " anything is masked, what can be masked and nothing else.",
        examples=["mask"],
    )
    expectations: dict[Annotated[str, AfterValidator(checks.expectation_name)], ExpectationFields] = Field(
        default={},
        description="What is expected of every message that is to be a row: name to a condition and what happens where"
        " it is not met. Counted with every drain; the check `expectations` tells of the last 24 hours.",
        examples=[{"status_is_known": {"sql": "status BETWEEN 100 AND 599", "then": "warn"}}],
    )
    dead_letter_limit: DeadLetterLimitFields = Field(
        default=DeadLetterLimitFields(),
        description="How many dead letters one plan may have. Beyond it the drain stops before anything is written: the"
        " document may be wrong, not the messages.",
        examples=[{"share": 0.1, "count": 1000}],
    )
    contract: ContractFields = Field(
        default=ContractFields(),
        description="What becomes of fields that messages have and the record has not, and of values of other types.",
        examples=[{"new_columns": "discard_row"}],
    )
    rescued: Annotated[str, AfterValidator(checks.rescued)] = Field(
        default="",
        description="A string column that keeps what of a message did not fit the record, as a JSON object of places"
        " and values; null where all fitted. Of JSON alone. What is masked is not in it; what nobody declared is.",
        examples=["rescued"],
    )
    renamed_from: Annotated[str, AfterValidator(checks.table_or_none)] = Field(
        default="",
        description="The table's path before it was renamed; until its folders are moved, nothing is drained.",
        examples=["bronze/old_name"],
    )
    max_records: int = Field(
        default=5_000_000,
        strict=True,
        ge=1,
        description="At most so many offsets in one plan, over all topic partitions; it bounds a commit's size.",
        examples=[5_000_000],
    )
    max_bytes: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="At most so many bytes of keys and values in one plan, uncompressed: an estimate from what was"
        " drained last, before the first drain from a few messages. What the plan then holds is exact offsets.",
        examples=[500_000_000],
    )
    target_file_size: int | None = Field(
        default=None,
        strict=True,
        ge=1_048_576,
        description="Bytes of the Parquet files that a drain writes: what its tasks have of one date is brought"
        " together up to this size, and cut beyond it. Without it, a file for each task and date.",
        examples=[134_217_728],
    )
    properties: dict[Annotated[str, AfterValidator(checks.table_property)], str] = Field(
        default={},
        description="Delta table properties, set when the table is created.",
        examples=[{"delta.deletedFileRetentionDuration": "interval 14 days"}],
    )
    description: str = Field(
        default="", description="What the table holds, for its readers.", examples=["One row per request"]
    )
    owners: list[Annotated[str, AfterValidator(checks.owner)]] = Field(
        default=[], description="Teams (team:name) and addresses of who answers for the table.", examples=[["team:web"]]
    )

    @model_validator(mode="after")
    def _blocking_checks_are_there(self) -> TopicTableFields:
        if "fresh" in self.asset_checks.blocking and self.freshness is None:
            raise checks.wrong("checks.blocking names fresh, and freshness is not given", "give freshness as well")
        if "expectations" in self.asset_checks.blocking:
            said = "checks.blocking names expectations, and that check only warns"
            raise checks.wrong(said, "`then: fail` stops the drain itself")
        return self

    @model_validator(mode="after")
    def _fields_are_at_hand(self) -> TopicTableFields:
        of_json = self.message_format.name == "json"
        for asked, wanted in (("rescued", self.rescued), ("contract.types", self.contract.contract().leaves_out)):
            if wanted and not of_json:
                said = f"{asked} asks for single fields of messages, and only of json they are at hand"
                raise checks.wrong(f"{said}, not of {self.message_format.name}", f"another {asked}, or none")
        if self.contract.new_columns in ("freeze", "discard_row") and not self.message_format.tells_unknown:
            said = f"messages of {self.message_format.name} do not tell here which fields the record has not"
            raise checks.wrong(f"contract.new_columns: {said}", "discard_value, which is the default")
        return self

    @model_validator(mode="after")
    def _evolves_by_itself(self) -> TopicTableFields:
        evolves = self.contract.contract().evolves
        if evolves and self.route:
            # What one table's record takes and another's does not would be nobody's.
            said = (
                "streams of a route group read messages alike, and contract: evolve makes a record of the table's own"
            )
            raise checks.wrong(said, "another contract, or no route")
        if evolves and (self.explode or self.message_format.has_several_records):
            raise checks.wrong("contract: evolve does not know the columns of elements", "another contract")
        return self

    @property
    def registry(self) -> str:
        """Name of the ``SchemaRegistry`` document of the topic's schemas; empty where the format asks for none."""
        return self.message_format.registry

    def stream(self, cluster: KafkaCluster, registry: SchemaRegistry | None = None, *, folder: Path = Path()) -> Stream:
        """The stream that these fields describe.

        Args:
            registry: The one that ``self.registry`` names.
            folder: Of the document: where the paths of files in it begin.

        Raises:
            SchemaFileMistake: A file that the document names cannot be used.
        """
        return Stream(
            topic=self.topic,
            table=self.table,
            record_ddl=self.ddl,
            date_expression=self.date_expression,
            cluster=cluster,
            columns=self.columns,
            filter=self.filter_sql,
            explode=_explode(self.explode),
            coordinates=self.coordinates,
            date_window=DateWindow(self.date_window.start, self.date_window.ahead_days),
            app_id=self.app_id,
            start=_start_policy(self.start),
            drain_when=self.drain_when.drain_when(),
            status=cast(Status, self.status),
            freshness=self.freshness.freshness() if self.freshness else None,
            checks=self.asset_checks.limits(),
            tombstones=self.tombstones,
            mask=self.mask,
            dead_letter_payload=self.dead_letter_payload,
            expectations={name: fields.expectation() for name, fields in self.expectations.items()},
            dead_letter_limit=self.dead_letter_limit.limit(),
            contract=self.contract.contract(),
            rescued=self.rescued,
            renamed_from=self.renamed_from,
            max_records=self.max_records,
            max_bytes=self.max_bytes,
            target_file_size=self.target_file_size,
            properties=self.properties,
            description=self.description,
            owners=tuple(self.owners),
            format=self.message_format.format(folder, topic=self.topic, registry=registry),
            compression=cast(Compression, self.compression),
            route=self.route.route() if self.route else None,
        )


def _explode(written: dict[str, str] | None) -> Explode | None:
    return next((Explode(name, sql) for name, sql in (written or {}).items()), None)


def _start_policy(start: str | dict[int, int]) -> StartPolicy:
    if isinstance(start, dict):
        return start
    return cast(StartPolicy, start) if start in ("earliest", "latest") else datetime.fromisoformat(start)
