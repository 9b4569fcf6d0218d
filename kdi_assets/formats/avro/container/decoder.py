"""Containers to records: each by the schema that it brings along, as the stream's own schema has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.formats.avro import container, decoder, schema_text
from kdi_assets.formats.avro.container.blocks import DATUMS, REASON, REASONS, SCHEMA, WRITER, opening
from kdi_assets.formats.avro.schema_text import NoSchema, canonical_form
from kdi_assets.formats.decoder import DECODED, DOCUMENT, PAYLOAD, RECORD
from kdi_assets.formats.errors import FormatMistake, TooManySchemas
from kdi_assets.formats.rules import Rule, any_of
from kdi_assets.stream.message_format import RECORDS, AvroContainer, SchemaFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MOST_WRITERS = 100
"""Schemas that nobody knew, in one plan: each is a decoder of its own in what Spark runs."""
_OPENED, _READ = "_kdi_opened", "_kdi_read"
_OPENED_DDL = f"{REASON} string, {WRITER} int, {SCHEMA} string, {DATUMS} binary"
_UNSUITABLE = -1
_FIELD = "format.avro.schema_file"


@dataclass(frozen=True)
class AvroContainerDecoder:
    """Any number of datums per message, each message's of one schema.

    ``_kdi_document`` says why a container cannot be opened, or which schema it was written with, and has its datums and
    the mark behind them.

    Attributes:
        others: Schemas, in their canonical form, that containers were found to be written with.
    """

    written: AvroContainer
    others: tuple[str, ...] = ()

    def record_type(self, ddl: str) -> StructType:
        from pyspark.sql.types import ArrayType, StructField, StructType

        return StructType([StructField(RECORDS, ArrayType(decoder.record_type(self.written.schema, _FIELD)))])

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        opened = messages.withColumn(_OPENED, self._opened())
        read = F.when(F.lit(False), self._datums(self.written.schema))
        for number, writer in enumerate(self._suitable):
            read = read.when(F.expr(f"{_OPENED}.{WRITER} = {number}"), self._datums(writer))
        told = ", ".join(f"'{part}', {_OPENED}.{part}" for part in (REASON, WRITER, SCHEMA))
        datums = ", ".join(f"'{part}', {_READ}.{part}" for part in (decoder.DATUM, decoder.END))
        no_text = any_of(self._text_rules(record))
        return (
            opened.withColumn(_READ, read)
            .withColumn(DOCUMENT, F.expr(f"named_struct({told}, {datums})"))
            .withColumn(DECODED, F.expr(f"coalesce({_END} = X'{decoder.MARK}', false) AND NOT ({no_text})"))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN named_struct('{RECORDS}', {_DATUMS}) END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        why = f"{DOCUMENT}.{REASON}"
        return [
            Rule("blank", f"length({PAYLOAD}) = 0"),
            *(Rule(reason, f"{why} = '{reason}'") for reason in REASONS),
            Rule("incompatible_schema", f"{DOCUMENT}.{WRITER} = {_UNSUITABLE} OR {self.unknown}"),
            Rule("trailing_bytes", f"{_END} <> X'{decoder.MARK}'"),
            *(
                Rule(rule.reason, f"{_END} IS NOT NULL AND {rule.predicate}", rule.field)
                for rule in self._text_rules(record)
            ),
            Rule("malformed_avro", "true"),
        ]

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        writers = {f"{DOCUMENT}.{WRITER} = {number}": writer for number, writer in enumerate(self._suitable)}
        return decoder.with_unknown_of(messages, writers, self.written.schema, where)

    @property
    def unknown(self) -> str:
        """Spark SQL over what ``decode`` gives: whether a container brings a schema that is not known here."""
        return f"{DOCUMENT}.{SCHEMA} IS NOT NULL"

    def knowing_writers_of(self, payloads: DataFrame, *, stream: str) -> AvroContainerDecoder | None:
        """A decoder that knows the schemas of these containers; none if this one does.

        Args:
            payloads: With ``_kdi_payload``; they are read.

        Raises:
            TooManySchemas: There are too many.
        """
        from pyspark.sql import functions as F

        schemas = payloads.select(self._opened().alias(_OPENED)).select(f"{_OPENED}.{SCHEMA}")
        # Materialised by the shuffle: what stands behind it does not open containers once more.
        found = schemas.where(F.col(SCHEMA).isNotNull()).distinct().limit(MOST_WRITERS + 1).collect()
        if len(found) > MOST_WRITERS:
            raise TooManySchemas(stream=stream, said=f"bring more than {MOST_WRITERS} schemas.")
        return replace(self, others=(*self.others, *sorted(row[0] for row in found))) if found else None

    @cached_property
    def _known(self) -> dict[str, int]:
        """Schemas by their canonical form to their places in ``_suitable``."""
        suitable = [writer.path for writer in self._suitable]
        return {form: suitable.index(form) if form in suitable else _UNSUITABLE for form in (self._own, *self.others)}

    @cached_property
    def _suitable(self) -> list[SchemaFile]:
        """What wrote datums that become the stream's records; the first is the stream's own."""
        reader = self.written.schema.text
        writers = [SchemaFile(form, form) for form in self.others if not decoder.why_refused(reader, form)]
        return [SchemaFile(self._own, reader), *writers]

    @cached_property
    def _own(self) -> str:
        try:
            return canonical_form(self.written.schema.text)
        except NoSchema as refused:
            raise FormatMistake(_FIELD, f"{self.written.schema.path} is no schema of Avro: {refused}") from refused

    def _opened(self) -> Column:
        import pyarrow as pa
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.functions import arrow_udf

        take_code_along()
        open_all = opening(self._known)
        # PySpark looks at the types themselves for whether a function takes all batches; in its module they are names.
        open_all.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
        # Not deterministic: else Spark may run it again where its result stands in a condition.
        opened = cast(Any, arrow_udf)(open_all, _OPENED_DDL).asNondeterministic()
        return cast("Column", opened(F.col(PAYLOAD)))

    def _datums(self, writer: SchemaFile) -> Column:
        own = writer.text == self.written.schema.text
        return decoder.datum(f"{_OPENED}.{DATUMS}", _many(writer), reader=None if own else _many(self.written.schema))

    @staticmethod
    def _text_rules(record: StructType) -> list[Rule]:
        return list(decoder.text_rules(_DATUMS, record[RECORDS].dataType, RECORDS))


_DATUMS, _END = f"{DOCUMENT}.{decoder.DATUM}", f"{DOCUMENT}.{decoder.END}"


def _many(schema: SchemaFile) -> SchemaFile:
    return SchemaFile(schema.path, json.dumps({"type": "array", "items": json.loads(schema.text)}))


def take_code_along() -> None:
    """Send the functions themselves to workers, as Protobuf's are, and for its reasons."""
    from pyspark import cloudpickle

    for module in (container, schema_text):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
