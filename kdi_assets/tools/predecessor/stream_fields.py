"""The options of a command line as fields of a stream's document, apart from its transforms and its cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdi_assets.tools.predecessor.command import Given, IngestCommand, Word
from kdi_assets.tools.predecessor.option_notes import OptionNote, note, undecided
from kdi_assets.tools.predecessor.table import FoundTable

LEAST_FILE_SIZE = 1_048_576
FIRST_DATE = "2020-01-01"
_NO_FIELD: Mapping[str, str] = {
    "consumer_group": "none: no consumer group is joined or read",
    "max_messages_per_batch": "none: Spark's writer makes row groups by size",
    "checkpoints": "none: a checkpoint is written every 30 commits; `properties: {delta.checkpointInterval: …}`",
    "ends_at_latest_offsets": "none: a drain always ends with what was there when it began; "
    "`drain_when: {cron: …}` sets its times",
}
_VARIABLES = (
    (r"AWS_S3_LOCKING_PROVIDER|DELTA_DYNAMO_\w+|DYNAMO_LOCK_\w+|DEAD_LETTER_DYNAMO_\w+",
     "none, remove it: commits are puts with a condition, and the two do not see each other"),
    (r"AWS_\w+", "the same variable, for Spark, delta-rs and boto3"),
    (r"AZURE_\w+", "the same variable for delta-rs; Spark needs fs.azure.… in its own configuration"),
    (r"RUST_LOG|SENTRY_DSN|KDI_METRICS_INPUT_QUEUE_SIZE", "none: a setting of its process"),
    (r"KDI_METRICS_PREFIX", "`kdi metrics serve --statsd-prefix`, or the same variable"),
    (r"SSL_CERT_FILE", "KafkaCluster: tls.ca, if the authority is not the system's"),
)  # fmt: skip


@dataclass
class ImportedFields:
    """Fields of a document, and what is to be said of the options.

    Attributes:
        files: Schema files to copy beside the document: name there to where they are now.
        registry: The option that gives the address of a registry.
    """

    attributes: dict[str, Any] = field(default_factory=dict)
    notes: list[OptionNote] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    registry: Given | None = None

    @property
    def explodes(self) -> bool:
        """Whether a message may become several rows."""
        return "container" in self.attributes.get("format", {}).get("avro", {})

    @property
    def of_schema(self) -> bool:
        """Whether the record is that of a schema."""
        return "avro" in self.attributes.get("format", {})


def stream_fields(command: IngestCommand, table: FoundTable | None) -> ImportedFields:
    """Translate the options."""
    found = ImportedFields()
    app_id = command.given("app_id") or Given("--app_id", command.value("app_id"), "its default")
    found.attributes["app_id"] = app_id.value
    found.notes.append(note(app_id, f"app_id: {app_id.value}"))
    _format(command, found)
    _start(command, table, found)
    _drain_when(command, found)
    for name, here in _NO_FIELD.items():
        if given := command.given(name):
            found.notes.append(note(given, here))
    if given := command.given("statsd_endpoint"):
        found.notes.append(note(given, f"`kdi metrics serve --statsd {given.value} --statsd-names kafka-delta-ingest`"))
    _dead_letters(command, found)
    found.notes += filter(None, (_variable(name, word) for name, word in sorted(command.variables.items())))
    return found


def _format(command: IngestCommand, found: ImportedFields) -> None:
    given = next((g for name in ("json", "avro", "soe-avro") if (g := command.given(name))), None)
    if given and given.value.startswith("http"):
        found.registry = given
    elif given and "json" in given.option.lower():
        found.notes.append(note(given, "format: json, the default"))
    elif given and given.value:
        _avro_file(given, found, single_object="soe" in given.option)
    elif given:
        why = "each message is an Avro container, and a record has one schema here: give --avro FILE with that schema"
        found.notes.append(undecided(given, why))
    if gzip := command.given("decompress_gzip"):
        if given and (found.registry or "avro" in given.option.lower()):
            found.notes.append(note(gzip, "left out: it had no effect with --avro or a registry"))
        else:
            found.attributes["compression"] = "gzip"
            found.notes.append(note(gzip, "compression: gzip"))


def _avro_file(given: Given, found: ImportedFields, *, single_object: bool) -> None:
    path = Path(given.value)
    if not path.exists():
        found.notes.append(undecided(given, "there is no such file here; run the command where it is"))
        return
    if single_object and path.is_dir() and len(list(path.iterdir())) != 1:
        why = (
            "of several schemas one is the table's record: give --soe-avro FILE with that one, then add the folder of "
        )
        found.notes.append(undecided(given, f"{why}all to the document, `format: {{avro: {{schemas: …, reader: …}}}}`"))
        return
    path = next(path.iterdir()) if path.is_dir() else path
    found.files[path.name] = path
    avro = {"schemas": path.name} if single_object else {"container": True, "schema_file": path.name}
    found.attributes["format"] = {"avro": avro}
    rest = "" if single_object else "; all records of a message become rows, there only the first one"
    found.notes.append(note(given, f"format: avro, with a copy of the file beside the document{rest}"))


def _start(command: IngestCommand, table: FoundTable | None, found: ImportedFields) -> None:
    reset, seek = command.given("auto_offset_reset"), command.given("seek_offsets")
    if reset and reset.value not in ("earliest", "latest"):
        found.notes.append(undecided(reset, "is neither earliest nor latest"))
    elif reset and not seek:
        found.attributes["start"] = reset.value
        found.notes.append(note(reset, f"start: {reset.value}; positions in the table come first"))
    if not seek:
        return
    try:
        offsets = {int(partition): int(offset) + 1 for partition, offset in json.loads(seek.value).items()}
    except (ValueError, AttributeError, TypeError):
        found.notes.append(undecided(seek, 'is not {"0":123}'))
        return
    positions = table.positions if table else {}
    if behind := [p for p, offset in sorted(offsets.items()) if p in positions and positions[p] < offset]:
        at = ", ".join(f"{p} is at {positions[p]}" for p in behind)
        found.notes.append(
            undecided(seek, f"the table's positions are lower, and both programs refuse that: topic partition {at}")
        )
        return
    found.attributes["start"] = offsets
    rest = "; others begin at the earliest, there at the latest" if reset and reset.value == "latest" else ""
    found.notes.append(note(seek, f"start: {offsets}, the next offsets to read{rest}"))
    if reset:
        found.notes.append(note(reset, "start: the seek offsets"))


def _drain_when(command: IngestCommand, found: ImportedFields) -> None:
    when: dict[str, int | None] = {}
    for name, fields in (("allowed_latency", ("lag_seconds",)), ("min_bytes_per_file", ("backlog_bytes",))):
        if (given := command.given(name)) is None:
            continue
        if not given.value.isdecimal() or (name == "min_bytes_per_file" and int(given.value) == 0):
            found.notes.append(undecided(given, "is not a number"))
            continue
        value = int(given.value)
        when |= {"backlog_messages": None, fields[0]: value}
        said = f"drain_when.{fields[0]}: {value}"
        if name == "min_bytes_per_file" and value >= LEAST_FILE_SIZE:
            found.attributes["target_file_size"] = value
            said += f", target_file_size: {value}"
        found.notes.append(note(given, said))
    if when:
        found.attributes["drain_when"] = when


def _dead_letters(command: IngestCommand, found: ImportedFields) -> None:
    if given := command.given("dlq_table_location"):
        said = "the table `…_dead_letters`; this one stays as it is (`kdi dead-letters view` has its form)"
        found.notes.append(note(given, said))
    for given in command.options.get("dlq_transform", ()):
        found.notes.append(note(given, "none: dead letters have their own date and coordinates"))


def _variable(name: str, word: Word) -> OptionNote | None:
    """What becomes of a variable that is not an option; its value is never shown."""
    if name.startswith(("KAFKA_DELTA_INGEST_", "SCHEMA_REGISTRY_")):
        return None  # of the cluster or the registry
    here = next((here for pattern, here in _VARIABLES if re.fullmatch(pattern, name)), "")
    return OptionNote(name, word.where, here) if here else None


def date_window(table: FoundTable) -> dict[str, str]:
    """The field ``date_window`` for a table with dates before its default; empty otherwise."""
    oldest = table.oldest_date
    if re.fullmatch(r"\d{4}-\d\d-\d\d", oldest) and oldest < FIRST_DATE:
        return {"start": oldest, "ahead": "2 days"}
    return {}
