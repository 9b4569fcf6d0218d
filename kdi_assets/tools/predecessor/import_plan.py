"""What `kdi import-kdi` writes and what then happens: documents, statements, steps; and the writing itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.folder import display_path
from kdi_assets.documents.loading.loader import SCHEMA_REGISTRY, LoadedFolder, read_streams
from kdi_assets.documents.loading.yaml_documents import Documents, parse, sorted_mistakes
from kdi_assets.streams.ledger.errors import TRANSACTION_RETENTION
from kdi_assets.tools.predecessor.command import IngestCommand
from kdi_assets.tools.predecessor.connections import ImportedConnection, cluster_of, registry_of
from kdi_assets.tools.predecessor.documents import connection_document, stream_document
from kdi_assets.tools.predecessor.errors import CommandNotRead, Undecided
from kdi_assets.tools.predecessor.option_notes import OptionNote
from kdi_assets.tools.predecessor.stream_fields import ImportedFields, date_window, stream_fields
from kdi_assets.tools.predecessor.table import FoundTable, TableLocation
from kdi_assets.tools.predecessor.transforms import DATE, TranslatedColumns, alter_table, translate_transforms
from kdi_assets.tools.scaffold.document import document_file
from kdi_assets.tools.scaffold.errors import NothingProposed

_CLEANUP = "delta.enableExpiredLogCleanup"


@dataclass(frozen=True)
class ImportPlan:
    """An import, of which nothing is written yet.

    Attributes:
        stream: The stream's name: the table's path below the lake.
        files: New documents: file to text.
        copies: Schema files: new file to the file that is copied.
        notes: What becomes of each option.
        alters: Statements that the table needs before the first drain.
        may_alter: Statements that it may have.
        alters_later: Statements that it needs after the takeover.
        secrets: Environment variables that must be set: name to what they hold.
        positions: Next offset of each topic partition in the table's log; ``None``: the log was not read.
    """

    stream: str
    topic: str
    lake: str
    files: Mapping[Path, str]
    notes: tuple[OptionNote, ...]
    copies: Mapping[Path, Path] = field(default_factory=dict)
    alters: tuple[str, ...] = ()
    may_alter: tuple[str, ...] = ()
    alters_later: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[int, int] | None = None
    start: object = "earliest"

    @property
    def undecided(self) -> tuple[OptionNote, ...]:
        """What someone must decide before anything is written."""
        return tuple(note for note in self.notes if note.undecided)

    def refuse_undecided(self) -> None:
        """Refuse to go on while someone must decide.

        Raises:
            Undecided: Something has no translation.
        """
        if self.undecided:
            raise Undecided(undecided=tuple(f"{note.text()}: {note.here}" for note in self.undecided))


def plan_import(
    command: IngestCommand, table: FoundTable, location: TableLocation, folder: Path, loaded: LoadedFolder
) -> ImportPlan:
    """Translate a command line.

    Args:
        folder: Of the documents.
        loaded: What it describes already.

    Raises:
        NothingProposed: The stream's document exists already.
    """
    fields = stream_fields(command, table)
    connections = _connections(command, fields, loaded)
    transforms = command.options.get("transform", ())
    columns = translate_transforms(transforms, table.columns, explodes=fields.explodes, of_schema=fields.of_schema)
    topic = command.value("topic")
    attributes = {"topic": topic, "table": location.table, "cluster": connections[0].name, **fields.attributes}
    attributes |= {"date_window": window} if (window := date_window(table)) else {}
    text = stream_document(attributes, columns, lake=location.lake, of_schema=fields.of_schema)
    file = _document_file(folder, location.table or topic, topic)
    alters, may_alter = _alters(location.uri, table, columns)
    return ImportPlan(
        stream=location.table,
        topic=topic,
        lake=location.lake,
        files={**_connection_files(connections, folder), file: text},
        copies={file.parent / name: path for name, path in fields.files.items()},
        notes=(*connections[0].notes, *(n for c in connections[1:] for n in c.notes), *fields.notes, *columns.notes)
        + _of_table(command, table, location, columns, fields),
        alters=alters,
        may_alter=may_alter,
        alters_later=_keep_log(location.uri, table),
        secrets={name: of for connection in connections for name, of in connection.secrets.items()},
        positions=table.positions if table.whole_log else None,
        start=fields.attributes.get("start", "earliest"),
    )


def _connections(command: IngestCommand, fields: ImportedFields, loaded: LoadedFolder) -> list[ImportedConnection]:
    """The cluster, and the registry if there is one; the format is set to it."""
    connections = [cluster_of(command, loaded.clusters)]
    if fields.registry:
        connections.append(registry_of(command, fields.registry, loaded.registries))
        kind = "json" if "json" in fields.registry.option.lower() else "avro"
        fields.attributes["format"] = {kind: {"registry": connections[-1].name}}
    return connections


def check_documents(plan: ImportPlan, folder: Path) -> None:
    """Check the documents as the loader does, beside those of the folder. Nothing is written.

    Raises:
        Mistakes: With every mistake in the new documents.
    """
    proposed = Documents()
    # Schema files are copied later: a document that names one is read beside the file as it is now.
    folders = {copy.parent: path.parent for copy, path in plan.copies.items()}
    places = {
        display_path(folders.get(file.parent, file.parent) / file.name): text for file, text in plan.files.items()
    }
    for place, text in places.items():
        parsed = parse(text, place)
        proposed.documents += parsed.documents
        proposed.mistakes += parsed.mistakes
    loaded = read_streams(folder, proposed=proposed)
    if found := [mistake for mistake in loaded.mistakes if mistake.file in places]:
        raise Mistakes(mistakes=sorted_mistakes(found))


def write_import(plan: ImportPlan) -> None:
    """Write the documents; files that exist are never changed.

    Raises:
        CommandNotRead: A file exists.
    """
    for file in (*plan.files, *plan.copies):
        if file.exists():
            right = "the same command with another --defs, or after moving the file away"
            raise CommandNotRead(where=display_path(file), why="exists already and stays as it is", right=right)
    for copy, path in plan.copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for file, text in plan.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(text)


def _document_file(folder: Path, table: str, topic: str) -> Path:
    try:
        return document_file(folder, table, topic=topic)
    except NothingProposed as refused:
        run = "the same command with another --defs, or after moving the document away"
        raise replace(refused, run=run) from None


def _connection_files(connections: list[ImportedConnection], folder: Path) -> dict[Path, str]:
    files = {}
    for connection in connections:
        if connection.attributes:
            kind = "registry" if connection.type == SCHEMA_REGISTRY else "kafka"
            name = kind if connection.name == "main" else f"{kind}_{connection.name}"
            files[folder / name / "defs.yaml"] = connection_document(connection)
    return files


def _alters(uri: str, table: FoundTable, columns: TranslatedColumns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Statements that the table needs, and those that it may have."""
    needed = {path: type_ for path, (type_, must) in columns.added.items() if must}
    optional = {path: type_ for path, (type_, must) in columns.added.items() if not must}
    alters = [alter_table(uri, needed)] if needed else []
    if TRANSACTION_RETENTION in table.properties:
        alters.append(f"ALTER TABLE delta.`{uri}` UNSET TBLPROPERTIES ({TRANSACTION_RETENTION})")
    return tuple(alters), (alter_table(uri, optional),) if optional else ()


def _keep_log(uri: str, table: FoundTable) -> tuple[str, ...]:
    """The statement that keeps Delta from deleting ledger entries with old commits."""
    if table.properties.get(_CLEANUP) == "false":
        return ()
    return (f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ({_CLEANUP} = false)",)


def _of_table(
    command: IngestCommand,
    table: FoundTable,
    location: TableLocation,
    columns: TranslatedColumns,
    fields: ImportedFields,
) -> tuple[OptionNote, ...]:
    """Why the table cannot be taken over as it is."""
    given = command.given("table_location")
    where, shown = (given.where, f"table_location {given.value}") if given else ("", "table_location")
    next_offsets = dict(sorted(table.positions.items()))
    instead = "leave it as it is, and drain into a new table with a document of `kdi new`, " + (
        f"with `start: {next_offsets}`" if next_offsets else "with its positions as `start`"
    )
    said: list[str] = []
    if not location.table and location.lake:
        said.append(f"does not lie below KDI_LAKE, {location.lake}: set KDI_LAKE to a folder around it")
    elif not location.table:
        said.append("is the root of its bucket, and a table lies below a lake: copy it into a folder of the bucket")
    if DATE not in table.partition_columns:
        by = ", ".join(table.partition_columns) or "nothing"
        said.append(f"is partitioned by {by}, and tables here are partitioned by {DATE}: {instead}")
    elif _date_type(table) not in ("string", "date"):
        said.append(f"has a {DATE} that is {_date_type(table)}, neither text nor date: {instead}")
    if (reserved := columns.fields.reserved) and not fields.of_schema:
        said.append(f"has a column {', '.join(reserved)}, a name that no field of a record has here: {instead}")
    return tuple(OptionNote(shown, where, why, undecided=True) for why in said)


def _date_type(table: FoundTable) -> Any:
    return next((c["type"] for c in table.columns["fields"] if c["name"] == DATE), None)
