"""JSON whose record a schema describes, and that may have to be as it says: by a file, or by what frames name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kdi_assets.formats.decoder import FRAME, PAYLOAD, VIOLATION
from kdi_assets.formats.errors import FormatMistake
from kdi_assets.formats.framing import other_schema_than
from kdi_assets.formats.json import JsonDecoder
from kdi_assets.formats.json_schema.record import record_of
from kdi_assets.formats.json_schema.schema import JsonSchema, SchemaRefused, registered, validator
from kdi_assets.formats.json_schema.violations import violation
from kdi_assets.formats.registry.schemas import KnownSchemas
from kdi_assets.formats.rules import Rule
from kdi_assets.stream.message_format import Json, SchemaFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_VIOLATES = f"{VIOLATION} IS NOT NULL"


@dataclass(frozen=True, slots=True)
class JsonSchemaDecoder:
    """JSON whose record a schema describes; ``_kdi_document`` is the document as parsed.

    Attributes:
        schema: Describes the record.
        field: The document's field that names it.
        validate: Whether each message must be as its own schema says.
        salvages: As ``JsonDecoder`` has it.
        own: By id, the schemas that messages may have.
        schema_id: Spark SQL of type bigint: which of them a message has.
        unsuitable: Spark SQL: whether it has none of them; empty where there is but one.
    """

    schema: JsonSchema
    field: str
    validate: bool
    salvages: bool
    own: Mapping[int, JsonSchema]
    schema_id: str = "0L"
    unsuitable: str = ""

    @classmethod
    def of_file(cls, written: Json, *, salvages: bool) -> JsonSchemaDecoder:
        """By the schema of a file."""
        file = cast(SchemaFile, written.schema)
        schema = JsonSchema(file.path, file.text)
        return cls(schema, "format.json.schema_file", written.validate, salvages, {0: schema})

    @classmethod
    def of_registry(cls, known: KnownSchemas, *, validate: bool, salvages: bool) -> JsonSchemaDecoder:
        """By the schemas that frames name.

        Raises:
            FormatMistake: The reader's is no JSON Schema.
        """
        reader = registered(*known.schema_of_reader("JSON"))
        kept = {n: registered(schema, f"schema {n}") for n, schema in known.by_id.items() if schema.type == "JSON"}
        own = {n: schema for n, schema in kept.items() if not validate or not _refused(schema)}
        unsuitable = other_schema_than(own)
        return cls(reader, "format.json.registry", validate, salvages, own, f"{FRAME}.schema_id", unsuitable)

    def record_type(self, ddl: str) -> StructType:
        """What the DDL says, else what the schema describes."""
        try:
            if self.validate:
                validator(self.schema)
            return JsonDecoder().record_type(ddl) if ddl else record_of(self.schema)
        except SchemaRefused as refused:
            raise FormatMistake(self.field, f"{self.schema.called}: {refused.message}") from refused

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        unless = [self.unsuitable] if self.unsuitable else []
        if self.validate:
            found = violation(F.col(PAYLOAD), F.expr(self.schema_id), self.own)
            messages, unless = messages.withColumn(VIOLATION, found), [*unless, _VIOLATES]
        return JsonDecoder(" OR ".join(unless) or "false", salvages=self.salvages).decode(messages, record)

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return JsonDecoder().with_unknown(messages, record, where=where)

    def with_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return JsonDecoder().with_paths(messages, record, where=where)

    def rules(self, record: StructType) -> list[Rule]:
        unsuitable = [Rule("incompatible_schema", self.unsuitable)] if self.unsuitable else []
        violates = [Rule("schema_violation", _VIOLATES, field_sql=VIOLATION)] if self.validate else []  # asked last
        return [*unsuitable, *JsonDecoder().rules(record), *violates]


def _refused(schema: JsonSchema) -> bool:
    try:
        validator(schema)
    except SchemaRefused:
        return True
    return False
