"""The fields that say where the schemas of Avro are."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from kdi_assets.components.checks import wrong
from kdi_assets.components.folder import shown
from kdi_assets.components.schema_files import file_mistake, read_schema
from kdi_assets.components.subject_fields import RegistryFields
from kdi_assets.message_format import Avro, AvroContainer, AvroRegistry, AvroSingleObject, Format, SchemaRegistry


class AvroFields(RegistryFields):
    """Where the schemas are; exactly one of ``registry``, ``schema_file`` and ``schemas``."""

    schema_file: str = Field(
        default="",
        description="File of the schema that every message is a raw datum of, beside the document or below it.",
        examples=["orders.avsc"],
    )
    container: bool = Field(
        default=False,
        strict=True,
        description="Whether every message is an object container: any number of datums behind the schema that wrote"
        " them. Each becomes a row, as `schema_file` has it.",
        examples=[True],
    )
    schemas: str = Field(
        default="",
        description="Messages in single-object encoding: file of their schema, or folder of all that they may have.",
        examples=["schemas"],
    )
    reader: str = Field(
        default="",
        description="File of the schema that every message becomes, where `schemas` holds several.",
        examples=["schemas/orders-2.avsc"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> AvroFields:
        if [bool(self.registry), bool(self.schema_file), bool(self.schemas)].count(True) != 1:
            raise wrong("takes one of registry, schema_file and schemas", "e.g. avro: {schema_file: orders.avsc}")
        if self.reader and not self.schemas:
            raise wrong("names a reader for one schema", "remove the line")
        if self.container and not self.schema_file:
            said = "is a container and names no schema_file that its records become"
            raise wrong(said, "e.g. avro: {container: true, schema_file: orders.avsc}")
        return self

    def format(self, folder: Path, *, topic: str, registry: SchemaRegistry | None) -> Format:
        """The format that these fields describe.

        Args:
            folder: Of the document.
            registry: The one that they name.

        Raises:
            SchemaFileMistake: A file is not there, or is no JSON.
        """
        if registry is not None:
            return AvroRegistry(self.schemas_of(registry, topic))
        if self.schema_file:
            schema = read_schema(folder / self.schema_file, "avro.schema_file")
            return AvroContainer(schema) if self.container else Avro(schema)
        named = folder / self.schemas
        files = sorted(named.glob("*.avsc")) if named.is_dir() else [named]
        if not files:
            raise file_mistake("avro.schemas", f"no schema lies in {shown(named)}", "files that end in .avsc")
        if len(files) > 1 and not self.reader:
            raise file_mistake(
                "avro.reader", "is missing: there are several schemas", f"e.g. reader: {files[-1].relative_to(folder)}"
            )
        reader = (
            read_schema(folder / self.reader, "avro.reader") if self.reader else read_schema(files[0], "avro.schemas")
        )
        return AvroSingleObject(reader, tuple(read_schema(file, "avro.schemas") for file in files))
