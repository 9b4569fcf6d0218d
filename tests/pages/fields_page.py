"""Writes the fields into ``docs/documents.md`` and ``docs/follower-documents.md``: ``make fields``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kdi_assets.components.topic_table import (
    KafkaCluster,
    KinesisConnection,
    KinesisTable,
    RefinedTable,
    SchemaRegistry,
    ServedTable,
    TopicTable,
    TopicTables,
)
from kdi_assets.documents.model.variables import AS_TEXT, MARK

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- all fields: written by `make fields` -->", "<!-- by hand -->"
COMPONENTS: dict[str, tuple[type[Any], ...]] = {
    "documents.md": (TopicTable, TopicTables, KinesisTable, KafkaCluster, SchemaRegistry, KinesisConnection),
    "follower-documents.md": (RefinedTable, ServedTable),
}
"""Components by page; the second page links to the objects of the first."""

MORE = {
    "TopicTable.table": "streams.md#the-table",
    "TopicTable.columns": "streams.md#the-struct-kafka",
    "TopicTable.fields": "contract.md#fields",
    "TopicTable.filter": "streams.md#filter",
    "TopicTable.explode": "streams.md#explode",
    "TopicTable.app_id": "procedures.md#take-over-a-table-of-kafka-delta-ingest",
    "TopicTable.start": "streams.md#start",
    "TopicTable.drain_when": "streams.md#when-a-run-starts",
    "TopicTable.status": "procedures.md#pause-resume-or-retire-a-stream",
    "TopicTable.freshness": "checks.md#freshness",
    "TopicTable.checks": "checks.md",
    "TopicTable.tombstones": "streams.md#tombstones",
    "TopicTable.mask": "masks.md",
    "TopicTable.tags": "masks.md#tags",
    "TopicTable.mask_tagged": "masks.md#masks-by-tag",
    "TopicTable.dead_letter_payload": "masks.md#what-dead-letters-keep",
    "TopicTable.expectations": "contract.md#expectations",
    "TopicTable.dead_letter_limit": "contract.md#too-many-dead-letters",
    "TopicTable.contract": "contract.md#contract",
    "TopicTable.rescued": "contract.md#rescued",
    "TopicTable.renamed_from": "procedures.md#rename-a-stream",
    "TopicTable.max_records": "streams.md#the-size-of-a-plan",
    "TopicTable.max_bytes": "streams.md#the-size-of-a-plan",
    "TopicTable.target_file_size": "streams.md#the-size-of-files",
    "TopicTable.keep": "keep.md",
    "TopicTable.upkeep": "operations.md#upkeep",
    "TopicTable.compression": "formats.md#compressed-values",
    "TopicTable.route": "routes.md",
    "TopicTable.announce": "files.md#announce",
    "TopicTable.format": "formats.md",
    "TopicTables.topics": "many-topics.md#a-list-or-a-pattern",
    "TopicTables.table": "many-topics.md#names-of-tables",
    "TopicTables.new_topics": "many-topics.md#new-topics",
    "TopicTables.exceptions": "many-topics.md#exceptions",
    "KinesisTable.start": "kinesis.md#taking-over-from-another-reader",
    "KinesisTable.coordinates": "kinesis.md#columns",
    "KinesisTable.consumer": "kinesis.md#enhanced-fan-out",
    "KafkaCluster.sasl": "connections.md",
    "KafkaCluster.tls": "connections.md",
    "SchemaRegistry.tls": "connections.md",
    "KinesisConnection.role_arn": "kinesis.md#rights",
    "RefinedTable.contract": "refined-tables.md#fields",
    "RefinedTable.cron": "refined-tables.md#in-dagster",
    "RefinedTable.mode": "refined-tables.md#modes",
    "RefinedTable.upkeep": "refined-tables.md#upkeep",
    "ServedTable.cron": "served-tables.md#in-dagster",
    "ServedTable.into": "served-tables.md",
}
"""Where a field is explained."""

VARIABLES = "environments.md#what-differs-in-the-documents"

DEFAULTS = {
    "TopicTable.format": "json",
    "RefinedTable.mode": "append",
    "mode.deduplicate.window": "1 day",
}
"""Defaults that are objects of the engine, which a JSON Schema cannot show as documents write them."""

REFERENCES = ("FromEnvironment", "FromSecretsManager")
TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def updated_pages() -> dict[Path, str]:
    """The pages with all fields as the code has them."""
    tables, pages = Tables(), {}
    for name, components in COMPONENTS.items():
        before, rest = (DOCS / name).read_text().split(BEGIN)
        _, after = rest.split(END)
        pages[DOCS / name] = f"{before}{BEGIN}\n\n{''.join(tables.of(name, components))}{END}{after}"
    return pages


def schema_of(component: type[Any]) -> dict[str, Any]:
    """The JSON Schema of the attributes of a component's documents."""
    schema: dict[str, Any] = component.model().model_json_schema()
    return schema


class Tables:
    """The tables of the pages. An object that several fields take has one table, which the others link to."""

    def __init__(self) -> None:
        self._page = ""
        self._headings: dict[str, tuple[str, str]] = {}  # page and heading of the table of a definition, by its name

    def of(self, page: str, components: tuple[type[Any], ...]) -> Iterator[str]:
        """Each component, followed by the objects that its fields take."""
        self._page = page
        for component in components:
            yield from self._component(component)
        if KafkaCluster in components:
            yield from self._references()

    def _references(self) -> Iterator[str]:
        definitions = schema_of(KafkaCluster)["$defs"]
        yield "## References\n\nFor secrets, and for what differs from one machine to the next: `{env: NAME}`, "
        yield "`{aws_secret: NAME}` or `{aws_secret: NAME, key: KEY}`.\n\n"
        owners = [definitions[name] for name in REFERENCES]
        yield _table(self._row("", field, owner) for owner in owners for field in owner["properties"])

    def _component(self, component: type[Any]) -> Iterator[str]:
        name, schema = component.__name__, schema_of(component)
        yield f"## `kdi_assets.components.{name}`\n\n{schema['description']}\n\n"
        fields = schema["properties"]
        if component in (TopicTables, KinesisTable):
            topic = schema_of(TopicTable)["properties"]
            same = [f for f in fields if f in topic and _meaning(fields[f]) == _meaning(topic[f])]
            absent = [f for f in topic if f not in fields]
            yield f"These fields are those of a `TopicTable`: {_names(same)}.\n\n"
            yield f"These do not exist: {_names(absent)}. Instead of them, and otherwise:\n\n"
            fields = {f: fields[f] for f in fields if f not in same}
        new = [*self._new(fields, schema["$defs"])] if "$defs" in schema else []
        yield _table(self._row(name, field, schema) for field in fields)
        for heading, definition in new:
            yield from self._object(heading, definition, schema["$defs"])

    def _new(
        self, fields: Mapping[str, Any], definitions: Mapping[str, Any], path: str = ""
    ) -> Iterator[tuple[str, str]]:
        """Heading and definition of each object that has no table yet, also of those inside of others."""
        for field, schema in fields.items():
            for definition in _referred(schema):
                inner = definitions[definition].get("properties", {})
                if definition in REFERENCES or definition in self._headings or not inner:
                    continue
                heading = f"{path}{field}"
                self._headings[definition] = (self._page, heading)
                yield heading, definition
                yield from self._new(inner, definitions, f"{heading}.")

    def _object(self, heading: str, definition: str, definitions: Mapping[str, Any]) -> Iterator[str]:
        schema = definitions[definition]
        yield f"### `{heading}`\n\n"
        yield _table(self._row(heading, field, schema) for field in schema["properties"])

    def _row(self, owner: str, field: str, schema: Mapping[str, Any]) -> str:
        of = schema["properties"][field]
        more = MORE.get(f"{owner}.{field}")
        variable = f" It may name a [variable]({VARIABLES})." if MARK in of else ""
        meaning = _text(of) + variable + (f" ([more]({more}))" if more else "")
        return f"| `{field}` | {self._type(of)} | {_default(owner, field, schema)} | {meaning} |"

    def _type(self, schema: Mapping[str, Any]) -> str:
        if "enum" in schema:
            words = [f"`{value}`" for value in schema["enum"]]
            return ", ".join(words) if len(words) < 7 else "text"
        if "const" in schema:
            return f"`{schema['const']}`"
        if "$ref" in schema:
            return self._link(schema["$ref"].rpartition("/")[2])
        if "anyOf" in schema:
            return self._one_of(schema)
        match schema.get("type"):
            case "array":
                return f"list of {self._type(schema['items']).replace('text', 'texts')}"
            case "object" if isinstance(of := schema.get("additionalProperties"), dict):
                return f"mapping to {self._type(of).replace('mapping to text', 'mapping')}"
            case "object":
                return "mapping"
            case None:
                return "text or list"
            case named:
                return TYPES[named]

    def _one_of(self, schema: Mapping[str, Any]) -> str:
        """The types; null only where it says something else than a missing field."""
        kinds = [one for one in schema["anyOf"] if one.get("type") != "null" and one != AS_TEXT]
        if any("const" not in one and one.get("type") == "string" for one in kinds):
            kinds = [one for one in kinds if "const" not in one]
        null = (
            ["`null`"]
            if any(one.get("type") == "null" for one in schema["anyOf"]) and schema.get("default") is not None
            else []
        )
        return " or ".join(dict.fromkeys([*map(self._type, kinds), *null]))

    def _link(self, definition: str) -> str:
        if definition in REFERENCES:
            page, heading = "documents.md", "references"
        elif definition in self._headings:
            page, heading = self._headings[definition]
        else:
            return "`{}`"
        name = "reference" if definition in REFERENCES else "fields"
        return f"[{name}]({'' if page == self._page else page}#{heading.replace('.', '')})"


def _referred(schema: Any) -> Iterator[str]:
    """Names of the definitions that a field takes, at any depth."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _referred(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _referred(value)


def _meaning(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("examples", "title")}


def _default(owner: str, field: str, schema: Mapping[str, Any]) -> str:
    if field in schema.get("required", ()):
        return "required"
    default = DEFAULTS.get(f"{owner}.{field}", schema["properties"][field].get("default"))
    if default in (None, "", [], {}):
        return ""
    written = default if isinstance(default, str) else yaml.safe_dump(default, default_flow_style=True)
    return f"`{written.removesuffix('...' + chr(10)).strip()}`"


def _table(rows: Iterator[str]) -> str:
    return "| field | type | default | meaning |\n| --- | --- | --- | --- |\n" + "".join(f"{r}\n" for r in rows) + "\n"


def _names(fields: list[str]) -> str:
    return ", ".join(f"`{field}`" for field in fields)


def _text(schema: Mapping[str, Any]) -> str:
    """The field's docstring, as Dagster's UI shows it."""
    parts = " ".join(schema["description"].split()).replace("|", r"\|").split("`")
    return "`".join(part if i % 2 else part.replace("<", "&lt;") for i, part in enumerate(parts))  # code as it is


if __name__ == "__main__":
    for path, text in updated_pages().items():
        path.write_text(text)
