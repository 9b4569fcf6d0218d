"""Containers to records: each container has its own schema, its datums are read as the stream's schema has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.documents.model.message_format import RECORDS, AvroContainer, SchemaFile
from kdi_assets.messages.formats.avro import container, decoder, schema_text
from kdi_assets.messages.formats.avro.container.blocks import DATUMS, REASON, REASONS, SCHEMA, WRITER, opening
from kdi_assets.messages.formats.avro.decoder import BLANK, DATUM, END
from kdi_assets.messages.formats.avro.readable import parsable, readable
from kdi_assets.messages.formats.avro.schema_text import NoSchema, canonical_form
from kdi_assets.messages.formats.decoder import DECODED, DOCUMENT, PAYLOAD, RECORD, Decoder
from kdi_assets.messages.formats.errors import FormatMistake, TooManySchemas
from kdi_assets.messages.formats.field_uses import ELEMENTS, FieldUses
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.runtime.worker_code import send_by_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MOST_WRITERS = 100
"""New schemas in one plan: each of them adds an expression to what Spark runs."""
_OPENED, _READ = "_kdi_opened", "_kdi_read"
_OPENED_DDL = f"{REASON} string, {WRITER} int, {SCHEMA} string, {DATUMS} binary"
_INCOMPATIBLE = -1
_FIELD = "format.avro.schema_file"


@dataclass(frozen=True)
class AvroContainerDecoder(Decoder):
    """Any number of datums per message, all of one schema.

    ``_kdi_document`` holds the reason why a container cannot be opened, or its schema, its datums and the mark.

    Attributes:
        reader: The schema that every datum becomes: the format's, as Spark can read it.
        others: Schemas, in their canonical form, of the containers that were seen.
    """

    format: AvroContainer
    reader: SchemaFile
    others: tuple[str, ...] = ()

    finds_unknown_fields = True
    unknown_schema = f"{DOCUMENT}.{SCHEMA} IS NOT NULL"

    @classmethod
    def of(cls, format_: AvroContainer, uses: FieldUses) -> AvroContainerDecoder:
        """Containers whose datums become the records of the format's schema."""
        schema = format_.schema
        return cls(format_, SchemaFile(schema.path, readable(parsable(schema.text), uses)))

    def record_type(self, ddl: str) -> StructType:
        from pyspark.sql.types import ArrayType, StructField, StructType

        return StructType([StructField(RECORDS, ArrayType(decoder.record_type(self.reader, _FIELD)))])

    def uses_after(self, uses: FieldUses) -> FieldUses:
        return uses.after_first_level(inside=f"{RECORDS}{ELEMENTS}")

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        reader = _array_of(self.reader)
        writers = {f"{_OPENED}.{WRITER} = {n}": _array_of(writer) for n, writer in enumerate(self._compatible)}
        parts = [f"'{part}', {_OPENED}.{part}" for part in (REASON, WRITER, SCHEMA)]
        parts += [f"'{part}', {_READ}.{part}" for part in (DATUM, END)]
        return (
            messages.withColumn(_OPENED, self._opened())
            .withColumn(_READ, decoder.read_by_writer(f"{_OPENED}.{DATUMS}", writers, reader))
            .withColumn(DOCUMENT, F.expr(f"named_struct({', '.join(parts)})"))
            .withColumn(DECODED, decoder.is_datum(record[RECORDS].dataType))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN named_struct('{RECORDS}', {DOCUMENT}.{DATUM}) END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        incompatible = f"{DOCUMENT}.{WRITER} = {_INCOMPATIBLE} OR {self.unknown_schema}"
        return [
            BLANK,
            *(Rule(reason, f"{DOCUMENT}.{REASON} = '{reason}'") for reason in REASONS),
            Rule("incompatible_schema", incompatible),
            *decoder.datum_rules(record[RECORDS].dataType, RECORDS),
        ]

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        writers = {f"{DOCUMENT}.{WRITER} = {number}": writer for number, writer in enumerate(self._compatible)}
        return decoder.with_unknown_of_writers(messages, writers, self.reader, where)

    def with_writers_of(self, payloads: DataFrame, *, stream: str) -> AvroContainerDecoder | None:
        """A decoder that also knows the schemas of these containers; none if this one knows them all.

        Args:
            payloads: With ``_kdi_payload``; they are read.

        Raises:
            TooManySchemas: There are too many.
        """
        from pyspark.sql import functions as F

        schemas = payloads.select(self._opened().alias(_OPENED)).select(f"{_OPENED}.{SCHEMA}")
        # The shuffle of distinct keeps its result, so that the limit does not open containers a second time.
        found = schemas.where(F.col(SCHEMA).isNotNull()).distinct().limit(MOST_WRITERS + 1).collect()
        if len(found) > MOST_WRITERS:
            raise TooManySchemas(stream=stream, said=f"bring more than {MOST_WRITERS} schemas.")
        return replace(self, others=(*self.others, *sorted(row[0] for row in found))) if found else None

    @cached_property
    def _known(self) -> dict[str, int]:
        """Canonical form of a schema to its place in ``_compatible``."""
        compatible = [writer.path for writer in self._compatible]
        return {
            form: compatible.index(form) if form in compatible else _INCOMPATIBLE for form in (self._own, *self.others)
        }

    @cached_property
    def _compatible(self) -> list[SchemaFile]:
        """Schemas whose datums become the stream's records; the first is the stream's own."""
        others = [SchemaFile(form, parsable(form)) for form in self.others]
        writers = [writer for writer in others if not decoder.why_refused(self.reader.text, writer.text)]
        return [SchemaFile(self._own, parsable(self.format.schema.text)), *writers]

    @cached_property
    def _own(self) -> str:
        try:
            return canonical_form(self.format.schema.text)
        except NoSchema as refused:
            raise FormatMistake(_FIELD, f"{self.format.schema.path} is not a schema of Avro: {refused}") from refused

    def _opened(self) -> Column:
        import pyarrow as pa
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.functions import arrow_udf

        send_by_value(container, schema_text)
        open_all = opening(self._known)
        # PySpark takes a function of batches by the types themselves; in that module the annotations are strings.
        open_all.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
        # Not deterministic: otherwise Spark may run it twice where a condition uses its result.
        opened = cast(Any, arrow_udf)(open_all, _OPENED_DDL).asNondeterministic()
        return cast("Column", opened(F.col(PAYLOAD)))


def _array_of(schema: SchemaFile) -> SchemaFile:
    return SchemaFile(schema.path, json.dumps({"type": "array", "items": json.loads(schema.text)}))
