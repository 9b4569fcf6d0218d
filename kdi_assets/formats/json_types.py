"""Which types are parsed wider than declared, how they are narrowed, and what condemns a value on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from kdi_assets.formats.decoder import PAYLOAD
from kdi_assets.formats.rules import Rule, literal, name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

AnyType = TypeVar("AnyType", bound="DataType")

_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
_PATTERNS = {
    "date": f"^{_DATE}$",
    "timestamp_ntz": f"^{_DATE}({_TIME})?$",
    "timestamp": f"^{_DATE}({_TIME}(Z|[+-][0-9]{{2}}(:[0-9]{{2}})?)?)?$",
}
# Spark writes a number, object or array that it finds where text is declared anew, and 5.10 becomes 5.1.
_REWRITTEN_NUMBER = r"^-?[0-9]+[.][0-9]+(E-?[0-9]+)?$"


def wide(declared: AnyType) -> AnyType:
    """The type to parse: times as text, decimals with all the digits there are, everything nullable."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            fields = [t.StructField(f.name, wide(f.dataType)) for f in declared.fields]
            return t.StructType(fields)  # type: ignore[return-value]
        case t.ArrayType():
            return t.ArrayType(wide(declared.elementType))  # type: ignore[return-value]
        case t.MapType():
            return t.MapType(t.StringType(), wide(declared.valueType))  # type: ignore[return-value]
        case t.TimestampType() | t.TimestampNTZType() | t.DateType():
            return t.StringType()  # type: ignore[return-value]
        case t.DecimalType():
            return t.DecimalType(38, 38 - (declared.precision - declared.scale))  # type: ignore[return-value]
    return declared


def narrow(value: str, declared: DataType, depth: int = 0) -> str:
    """Spark SQL that turns a wide value into the declared type; null stays null."""
    from pyspark.sql import types as t

    if wide(declared) == declared:
        return value
    item = f"_kdi_n{depth}"
    match declared:
        case t.StructType():
            parts = ", ".join(
                f"{literal(f.name)}, {narrow(f'{value}.{name(f.name)}', f.dataType, depth)}" for f in declared.fields
            )
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({parts}) END"
        case t.ArrayType():
            return f"transform({value}, {item} -> {narrow(item, declared.elementType, depth + 1)})"
        case t.MapType():
            return f"transform_values({value}, (_kdi_k, {item}) -> {narrow(item, declared.valueType, depth + 1)})"
    return f"try_cast({value} AS {declared.simpleString()})"


def rules_of(value: str, declared: DataType, path: str = "", *, nullable: bool = True, depth: int = 0) -> list[Rule]:
    """What condemns a wide value of the declared type; ``value`` is Spark SQL, ``path`` its name in messages."""
    from pyspark.sql import types as t

    rules = [] if nullable else [Rule("missing_field", f"{value} IS NULL", path)]
    item = f"_kdi_r{depth}"
    match declared:
        case t.StructType():
            for field in declared.fields:
                inner = f"{value}.{name(field.name)}"
                here = f"{path}.{field.name}" if path else field.name
                found = rules_of(inner, field.dataType, here, nullable=field.nullable, depth=depth)
                # A field of an absent struct is not missing: the struct is.
                rules += [
                    Rule(r.reason, f"{value} IS NOT NULL AND {r.predicate}", r.field)
                    if r.reason == "missing_field"
                    else r
                    for r in found
                ]
        case t.ArrayType() | t.MapType():
            element = declared.elementType if isinstance(declared, t.ArrayType) else declared.valueType
            items = value if isinstance(declared, t.ArrayType) else f"map_values({value})"
            has_null = declared.containsNull if isinstance(declared, t.ArrayType) else declared.valueContainsNull
            inner_rules = rules_of(item, element, f"{path}[]", nullable=has_null, depth=depth + 1)
            rules += [Rule(r.reason, f"exists({items}, {item} -> {r.predicate})", r.field) for r in inner_rules]
        case _:
            rules += _leaf_rules(value, declared, path)
    return rules


def leaf_paths(record: StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every field that is no struct: its path and its type's DDL."""
    from pyspark.sql import types as t

    for field in record.fields:
        here = (*path, field.name)
        if isinstance(field.dataType, t.StructType) and field.dataType.fields:
            yield from leaf_paths(field.dataType, here)
        else:
            yield here, field.dataType.simpleString()


def _leaf_rules(value: str, declared: DataType, path: str) -> list[Rule]:
    from pyspark.sql import types as t

    match declared:
        case t.StringType():
            return [Rule("wrong_type", _rewritten(value, path), path)]
        case t.DoubleType() | t.FloatType():
            # 1e400 is legal JSON and becomes infinite.
            return [Rule("out_of_range", f"abs({value}) = double('Infinity')", path)]
        case t.DecimalType():
            cast = f"try_cast({value} AS {declared.simpleString()})"
            return [Rule("too_precise", f"{value} <> {cast} OR ({value} IS NOT NULL AND {cast} IS NULL)", path)]
        case t.TimestampType() | t.TimestampNTZType() | t.DateType():
            return time_rules(value, declared, path)
    return []


def time_rules(value: str, declared: DataType, path: str) -> list[Rule]:
    """What condemns text that is to become a date or timestamp."""
    kind = declared.typeName()
    rules = [
        Rule("wrong_type", f"NOT {value} RLIKE {literal(_PATTERNS[kind])}", path),
        Rule("out_of_range", f"{value} IS NOT NULL AND try_cast({value} AS {kind}) IS NULL", path),
    ]
    if kind != "date":
        rules.append(Rule("too_precise", f"{value} RLIKE '[.][0-9]{{6}}[0-9]*[1-9]'", path))
    return rules


def _rewritten(value: str, path: str) -> str:
    """Whether text that is declared stands in the message as a number with a point, an object or an array.

    Almost no text looks like one of these; only where it does, the message is parsed again to see what it was.
    """
    # By order of cost: most text is told apart by its first byte, a double is written in 24 bytes at most, and a time
    # that is as short has colons.
    short = f"octet_length({value}) <= 24 AND contains({value}, '.') AND NOT contains({value}, ':')"
    # The quotation mark: a number beyond a double's range is written as "Infinity", quotes included.
    infinite, nested = f"startswith({value}, '\"')", f"startswith({value}, '[') OR startswith({value}, '{{')"
    looks = f"CASE WHEN {value} < ':' THEN ({short}) OR {infinite} ELSE {nested} END"
    number = f"{value} RLIKE {literal(_REWRITTEN_NUMBER)}"
    seldom = f"({value} > ':' OR {infinite} OR {number}) AND {_was_no_text(value, path)}"
    # Spark interprets lambdas: so what is seldom needed stays out of the code that it writes and the JVM compiles.
    return f"CASE WHEN {looks} THEN exists(array(0), _kdi_seldom -> {seldom}) ELSE false END"


def _was_no_text(value: str, path: str) -> str:
    if "[]" in path:
        # An element has no path to look at: it was text if its quoted form stands in the message.
        quoted = f"regexp_extract(to_json(array({value})), '^.(.*).$', 1)"
        return f"NOT contains(CAST({PAYLOAD} AS STRING), {quoted})"
    steps = "".join(f'["{step}"]' for step in path.split("."))
    found = f"try_variant_get(try_parse_json(CAST({PAYLOAD} AS STRING)), {literal('$' + steps)}, 'variant')"
    return f"coalesce(schema_of_variant({found}) <> 'STRING', true)"
