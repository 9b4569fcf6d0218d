"""JSON whose record a JSON Schema describes, from a file or from the registry; messages may be validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kdi_assets.documents.model.message_format import Json, SchemaFile
from kdi_assets.messages.formats.decoder import FRAME, PAYLOAD, VIOLATION, Decoder
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.framing import other_schema_than
from kdi_assets.messages.formats.json import JsonDecoder
from kdi_assets.messages.formats.json_schema import violations
from kdi_assets.messages.formats.json_schema.record import record_of
from kdi_assets.messages.formats.json_schema.schema import (
    JsonSchema,
    SchemaRefused,
    is_valid,
    property_names,
    registered,
    validator,
    validator_parts,
)
from kdi_assets.messages.formats.registry.schemas import KnownSchemas
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.runtime.worker_code import send_by_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_VIOLATES = f"{VIOLATION} IS NOT NULL"


@dataclass(frozen=True)
class JsonSchemaDecoder(Decoder):
    """JSON whose record a schema describes; ``_kdi_document`` is as in ``JsonDecoder``.

    Attributes:
        schema: Describes the record.
        field: The document's field that names it.
        validate: Whether each message must conform to its own schema.
        salvages: As in ``JsonDecoder``.
        schemas: The schemas of messages by id.
        schema_id: Spark SQL of type bigint: the id of a message's schema.
        incompatible: Spark SQL: whether a message has none of these schemas; empty where there is only one.
    """

    schema: JsonSchema
    field: str
    validate: bool
    salvages: bool
    schemas: Mapping[int, JsonSchema]
    schema_id: str = "0L"
    incompatible: str = ""

    finds_unknown_fields = True
    bounds_times = True
    reads_by_name = True

    @classmethod
    def of_file(cls, format_: Json, *, salvages: bool) -> JsonSchemaDecoder:
        """The schema of a file."""
        file = cast(SchemaFile, format_.schema)
        schema = JsonSchema(file.path, file.text)
        return cls(schema, "format.json.schema_file", format_.validate, salvages, {0: schema})

    @classmethod
    def of_registry(cls, known: KnownSchemas, *, validate: bool, salvages: bool) -> JsonSchemaDecoder:
        """The schemas that frames name.

        Raises:
            FormatMistake: The reader's schema is not JSON Schema.
        """
        reader = registered(*known.schema_of_reader("JSON"))
        kept = {n: registered(schema, f"schema {n}") for n, schema in known.by_id.items() if schema.type == "JSON"}
        usable = {n: schema for n, schema in kept.items() if not validate or is_valid(schema)}
        incompatible = other_schema_than(usable)
        return cls(reader, "format.json.registry", validate, salvages, usable, f"{FRAME}.schema_id", incompatible)

    def record_type(self, ddl: str) -> StructType:
        """The DDL's type, without a DDL what the schema describes."""
        try:
            if self.validate:
                validator(self.schema)
            return JsonDecoder().record_type(ddl) if ddl else record_of(self.schema)
        except SchemaRefused as refused:
            raise FormatMistake(self.field, f"{self.schema.label}: {refused.message}") from refused

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        unless = [self.incompatible] if self.incompatible else []
        if self.validate:
            found = violation(F.col(PAYLOAD), F.expr(self.schema_id), self.schemas)
            messages, unless = messages.withColumn(VIOLATION, found), [*unless, _VIOLATES]
        return JsonDecoder(" OR ".join(unless) or "false", salvages=self.salvages).decode(messages, record)

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return JsonDecoder().with_unknown(messages, record, where=where)

    def with_unknown_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return JsonDecoder().with_unknown_paths(messages, record, where=where)

    def rules(self, record: StructType) -> list[Rule]:
        incompatible = [Rule("incompatible_schema", self.incompatible)] if self.incompatible else []
        violates = [Rule("schema_violation", _VIOLATES, field_sql=VIOLATION)] if self.validate else []
        return [*incompatible, *JsonDecoder().rules(record), *violates]


def violation(payload: Column, schema_id: Column, schemas: Mapping[int, JsonSchema]) -> Column:
    """Where a document violates its schema.

    Args:
        payload: binary.
        schema_id: bigint: which of ``schemas`` the document has.

    Returns:
        string: path of the field, empty for the whole document; null where the document is valid, and where payload or
        schema are missing.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    send_by_value(violations)
    find = violations.finding({n: (validator_parts(of), property_names(of)) for n, of in schemas.items()})
    # A lambda, because it has no annotations: Spark would evaluate them, and pyarrow is not imported in that module.
    found = arrow_udf(lambda payloads, ids: find(payloads, ids), "string")  # type: ignore[call-overload]
    return cast("Column", found.asNondeterministic()(payload, schema_id))  # otherwise Spark may run it twice
