"""JSON whose record a schema describes, and that may have to be as it says: by a file, or by what frames name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kdi_assets.formats.decoder import FRAME, PAYLOAD, VIOLATION, FormatMistake
from kdi_assets.formats.framing import other_schema_than
from kdi_assets.formats.json import JsonDecoder
from kdi_assets.formats.json_paths import with_paths
from kdi_assets.formats.json_schema.record import record_of
from kdi_assets.formats.json_schema.schema import JsonSchema, SchemaRefused, registered, validator
from kdi_assets.formats.json_schema.violations import violation
from kdi_assets.formats.json_unknown import with_unknown
from kdi_assets.formats.registry.known import KnownSchemas
from kdi_assets.formats.rules import Rule
from kdi_assets.message_format import Json, SchemaFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_VIOLATES = f"{VIOLATION} IS NOT NULL"


@dataclass(frozen=True, slots=True)
class JsonFileDecoder:
    """JSON by the schema of a file; ``_kdi_document`` is the document as parsed."""

    written: Json
    salvages: bool = False

    def record_type(self, ddl: str) -> StructType:
        return _record_type(ddl, self._schema, "format.json.schema_file", validate=self.written.validate)

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        if not self.written.validate:
            return JsonDecoder(salvages=self.salvages).decode(messages, record)
        judged = _with_violation(messages, "0L", {0: self._schema})
        return JsonDecoder(_VIOLATES, salvages=self.salvages).decode(judged, record)

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_unknown(messages, record, where=where)

    def with_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_paths(messages, record, where=where)

    def rules(self, record: StructType) -> list[Rule]:
        return _rules_of_schema(record) if self.written.validate else JsonDecoder().rules(record)

    @property
    def _schema(self) -> JsonSchema:
        file = cast(SchemaFile, self.written.schema)
        return JsonSchema(file.path, file.text)


@dataclass(frozen=True, slots=True)
class JsonRegistryDecoder:
    """JSON behind the frame of a registry; ``_kdi_document`` is the document as parsed.

    Attributes:
        validate: Whether each message must be as the schema says that its frame names.
    """

    known: KnownSchemas
    validate: bool
    salvages: bool = False

    def record_type(self, ddl: str) -> StructType:
        schema = registered(*self.known.schema_of_reader("JSON"))
        return _record_type(ddl, schema, "format.json.registry", validate=self.validate)

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        if not self.validate:
            return JsonDecoder(self._unsuitable, salvages=self.salvages).decode(messages, record)
        judged = _with_violation(messages, f"{FRAME}.schema_id", self._usable())
        return JsonDecoder(f"{self._unsuitable} OR {_VIOLATES}", salvages=self.salvages).decode(judged, record)

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_unknown(messages, record, where=where)

    def with_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_paths(messages, record, where=where)

    def rules(self, record: StructType) -> list[Rule]:
        of_document = _rules_of_schema(record) if self.validate else JsonDecoder().rules(record)
        return [Rule("incompatible_schema", self._unsuitable), *of_document]

    @property
    def _unsuitable(self) -> str:
        """Spark SQL: whether the frame names a schema of another kind."""
        return other_schema_than(self._usable())

    def _usable(self) -> dict[int, JsonSchema]:
        """The schemas by which messages can be judged; a message of any other is a dead letter."""
        kept = {n: registered(schema, f"schema {n}") for n, schema in self.known.by_id.items() if schema.type == "JSON"}
        return {n: schema for n, schema in kept.items() if not self.validate or not _refused(schema)}


def _with_violation(messages: DataFrame, schema_id: str, schemas: Mapping[int, JsonSchema]) -> DataFrame:
    from pyspark.sql import functions as F

    return messages.withColumn(VIOLATION, violation(F.col(PAYLOAD), F.expr(schema_id), schemas))


def _rules_of_schema(record: StructType) -> list[Rule]:
    """Those of JSON; the last of them holds of whatever is left."""
    *others, rest = JsonDecoder().rules(record)
    return [*others, Rule("schema_violation", _VIOLATES, field_sql=VIOLATION), rest]


def _record_type(ddl: str, schema: JsonSchema, field: str, *, validate: bool) -> StructType:
    """What the DDL says, else what the schema describes.

    Raises:
        FormatMistake: The schema is none, or describes no record that a table can have.
    """
    try:
        if validate:
            validator(schema)
        return JsonDecoder().record_type(ddl) if ddl else record_of(schema)
    except SchemaRefused as refused:
        raise FormatMistake(field, f"{schema.called}: {refused.message}") from refused


def _refused(schema: JsonSchema) -> bool:
    try:
        validator(schema)
    except SchemaRefused:
        return True
    return False
