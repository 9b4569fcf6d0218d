"""JSON messages to typed records: one parse, and nothing changed in silence.

Spark's ``from_json`` alone is no validator: it drops text after the document, rounds decimals, turns numbers into
years, invalid UTF-8 into replacement characters. So the message is parsed inside an array that ends with a marker of
our own: whatever stands after the document then shows as a syntax error or as a wrong number of elements. Types that
would be changed on the way are parsed as a wider type and narrowed by us (``json_types``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kdi_assets.formats.catalyst import is_ascii
from kdi_assets.formats.decoder import DECODED, DOCUMENT, MISFITS, PAYLOAD, RECORD, FormatMistake
from kdi_assets.formats.json_paths import with_paths
from kdi_assets.formats.json_salvage import salvaged
from kdi_assets.formats.json_types import leaf_paths, narrow, rules_of, wide
from kdi_assets.formats.json_unknown import with_unknown
from kdi_assets.formats.rules import Rule, any_of, literal, name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

# Names that no message has by chance: only text written against this code could close our array and open another. A
# record with a field of the second name is condemned. They are short because they are parsed with every message.
_LIST, _END, _CORRUPT = "_k9f1c", "_k7e52", "_kdi_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_OPTIONS_SQL = f"map({', '.join(f'{literal(k)}, {literal(v)}' for k, v in _OPTIONS.items())})"
_TEXT = f"CAST({PAYLOAD} AS STRING)"
_ASCII, _PARSED, _SALVAGED = "_kdi_ascii", "_kdi_parsed", "_kdi_salvaged"
# Null unless the array holds one document and our marker, so also without a value. CASE, because Spark would copy a
# bare element of an array to all of its uses, and the JVM compiles no method beyond 8,000 bytes.
_THE_ONE_DOCUMENT = f"""
CASE WHEN {_PARSED}.{_CORRUPT} IS NULL AND size({_PARSED}.{_LIST}) = 2
      AND get({_PARSED}.{_LIST}, 0).{_END} IS NULL AND get({_PARSED}.{_LIST}, 1).{_END} IS NOT NULL
     THEN get({_PARSED}.{_LIST}, 0) END"""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """JSON by a declared record; ``_kdi_document`` is the document as parsed.

    Attributes:
        unless: Spark SQL: whether a message is not to be decoded, whatever it holds.
        salvages: Whether a value that does not suit its type is left out, and the message is decoded all the same.
    """

    unless: str = "false"
    salvages: bool = False

    def record_type(self, ddl: str) -> StructType:
        """What the DDL says; ``NOT NULL`` fields must be there."""
        from pyspark.sql.types import StructType

        declared = cast(StructType, StructType.fromDDL(ddl))
        if path := next(_other_keys(declared), ""):
            raise FormatMistake("schema", f"{path} has keys that are no strings, as JSON's are")
        return declared

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

        element = StructType([*wide(record).fields, StructField(_END, IntegerType())])
        schema = StructType([StructField(_LIST, ArrayType(element)), StructField(_CORRUPT, StringType())])
        inside = F.expr(f"""concat('{{"{_LIST}":[', {_TEXT}, ',{{"{_END}":1}}]}}')""")
        is_utf8 = f"({_ASCII} OR is_valid_utf8({_TEXT}))"
        condemned = any_of(rules_of(DOCUMENT, record))
        allowed = f"NOT ({self.unless})"
        decoded = (
            messages.withColumn(_ASCII, is_ascii(messages.sparkSession, _TEXT))
            .withColumn(_PARSED, F.from_json(inside, schema, _OPTIONS))
            .withColumn(DOCUMENT, F.expr(_THE_ONE_DOCUMENT))
            .withColumn(DECODED, F.expr(f"{DOCUMENT} IS NOT NULL AND {is_utf8} AND NOT ({condemned}) AND {allowed}"))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN {narrow(DOCUMENT, record)} END"))
        )
        return self._salvaged(decoded, record, f"{is_utf8} AND {allowed}") if self.salvages else decoded

    def _salvaged(self, decoded: DataFrame, record: StructType, where: str) -> DataFrame:
        from pyspark.sql import functions as F

        # Where nothing is narrowed, a record is the document, marker included.
        beside = f", '{_END}', CAST(NULL AS INT)" if wide(record) == record else ""
        bad = f"NOT {DECODED} AND {PAYLOAD} IS NOT NULL AND {where}"
        return (
            decoded.withColumn(_SALVAGED, F.expr(f"CASE WHEN {bad} THEN {salvaged(record, _OPTIONS_SQL, beside)} END"))
            .withColumn(MISFITS, F.expr(f"{_SALVAGED}.misfits"))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN {RECORD} ELSE {_SALVAGED}.record END"))
            .withColumn(DECODED, F.expr(f"{DECODED} OR {_SALVAGED} IS NOT NULL"))
        )

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_unknown(messages, record, where=where)

    def with_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_paths(messages, record, where=where)

    def rules(self, record: StructType) -> list[Rule]:
        """They cost several parses."""
        enclosed = f"""try_parse_json(concat('[', {_TEXT}, ',"{_END}"]'))"""
        elements = f"size(try_variant_get({enclosed}, '$', 'array<variant>'))"
        first = f"schema_of_variant(variant_get({enclosed}, '$[0]', 'variant'))"
        return [
            Rule("blank", f"length(trim(BOTH ' \\t\\r\\n' FROM {_TEXT})) = 0"),
            Rule("invalid_utf8", f"NOT is_valid_utf8({_TEXT})"),
            Rule("trailing_text", f"{elements} <> 2 OR ({enclosed} IS NULL AND try_parse_json({_TEXT}) IS NOT NULL)"),
            Rule("malformed_json", f"{elements} IS NULL"),
            Rule("not_an_object", f"NOT startswith({first}, 'OBJECT')"),
            # A field that does not parse is null: asked before whether it is missing.
            *_field_rules(record),
            *rules_of(DOCUMENT, record),
            Rule("wrong_type", "true"),
        ]


def _other_keys(declared: DataType, path: str = "") -> Iterator[str]:
    """Paths of maps whose keys are no strings."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            for field in declared.fields:
                yield from _other_keys(field.dataType, f"{path}.{field.name}" if path else field.name)
        case t.ArrayType():
            yield from _other_keys(declared.elementType, f"{path}[]")
        case t.MapType():
            if not isinstance(declared.keyType, t.StringType):
                yield path
            yield from _other_keys(declared.valueType, f"{path}[]")


def _field_rules(record: StructType) -> list[Rule]:
    """Which field does not parse: each is tried alone."""
    rules = []
    for path, ddl in leaf_paths(wide(record)):
        broken, dotted = _does_not_parse(path, ddl), ".".join(path)
        if ddl in _INTEGERS or ddl.startswith("decimal"):
            steps = literal("$" + "".join(f'["{step}"]' for step in path))
            number, fits = (
                f"try_variant_get(try_parse_json({_TEXT}), {steps}, '{kind}')" for kind in ("decimal(38,0)", ddl)
            )
            rules.append(Rule("out_of_range", f"{broken} AND {number} IS NOT NULL AND {fits} IS NULL", dotted))
        rules.append(Rule("wrong_type", broken, dotted))
    return rules


def _does_not_parse(path: tuple[str, ...], ddl: str) -> str:
    for step in reversed(path[1:]):
        ddl = f"struct<{name(step)}: {ddl}>"
    schema = literal(f"{name(path[0])} {ddl}, {_CORRUPT} string")
    return f"from_json({_TEXT}, {schema}, {_OPTIONS_SQL}).{_CORRUPT} IS NOT NULL"
