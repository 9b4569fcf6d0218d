"""Spark SQL with the type that its value has in JMESPath, and the conversion into the type of a column."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.messages.formats.rules import literal as text_literal
from kdi_assets.tools.predecessor.errors import NotTranslated
from kdi_assets.tools.predecessor.message_fields import DeltaType, ddl, is_number

BY_HAND = "write it by hand as Spark SQL in `columns`"
INSTANT, MICROS, DAY, TEXT_OF_NUMBER = "instant", "micros", "day", "text of a number"
"""Types that are none of Delta's: a timestamp that is text there; a timestamp that is microseconds there; the first ten
characters of such a text; text whose number is asked for."""


@dataclass(frozen=True, slots=True)
class TypedSql:
    """Spark SQL and its type.

    Attributes:
        may_be_null: Whether JMESPath may give null for a message, and not fail: then the target stays as it is.
    """

    text: str
    type: DeltaType
    may_be_null: bool = False


def to_type(sql: TypedSql, wanted: DeltaType) -> str:
    """Spark SQL of the value in another type, converted as kafka-delta-ingest writes it into such a column.

    Raises:
        NotTranslated: It has no such form.
    """
    text = sql.text
    match sql.type, wanted:
        case have, _ if have == wanted or wanted is None or _same(have, wanted):
            return text
        case "string", "date":
            return f"CAST({text} AS date)"
        case _, "date of the row":
            return _date_of_row(sql)
        case (("instant" | "day"), "date"):
            return f"to_date({text})" if sql.type == INSTANT else text
        case "instant", ("timestamp" | "timestamp_ntz"):
            return text if wanted == "timestamp" else f"CAST({text} AS timestamp_ntz)"
        case "instant", "string":
            return _iso8601(text)
        case "micros", "timestamp":
            return text
        case "text of a number", "string":
            return text
        case "text of a number", ("byte" | "short" | "integer" | "long"):
            return f"try_cast({text} AS {ddl(wanted)})"
        case "text of a number", _:
            return _between_numbers(f"try_cast({text} AS double)", "double", wanted)
        case "micros", _:
            return to_type(TypedSql(f"unix_micros({text})", "long"), wanted)
        case (("instant" | "day"), _):
            raise NotTranslated(f"a text of a time cannot become {ddl(wanted)}; {BY_HAND}")
        case (("byte" | "short" | "integer" | "long"), ("timestamp" | "timestamp_ntz")):
            return to_type(TypedSql(f"timestamp_micros({text})", "timestamp"), wanted)
        case ("timestamp", _) if is_number(wanted):
            return to_type(TypedSql(f"unix_micros({text})", "long"), wanted)
        case (dict(), _) | (_, dict()):
            return _nested(sql, wanted)
    return _between_numbers(text, sql.type, wanted)


def _nested(sql: TypedSql, wanted: DeltaType) -> str:
    """Spark SQL where the value, or what it becomes, is an object or an array."""
    if isinstance(sql.type, dict) and wanted == "string":
        if sql.type["type"] == "array" and isinstance(sql.type["elementType"], str):
            return f"to_json({sql.text})"
        said = "the text of an object has all its fields, and a record only those that it declares"
        raise NotTranslated(f"{said}; {BY_HAND}")
    raise NotTranslated(f"it gives {type_in_words(sql.type)}, and the column is {ddl(wanted)}; {BY_HAND}")


def _date_of_row(sql: TypedSql) -> str:
    """Spark SQL for the field ``date``, which casts what it gives to a date."""
    if sql.type == INSTANT:
        return f"to_date({sql.text})"
    if sql.type in ("string", "date", "timestamp", DAY):
        return sql.text
    raise NotTranslated(f"it gives {type_in_words(sql.type)} and no date; write it by hand as Spark SQL in `date`")


def _same(have: DeltaType, wanted: DeltaType) -> bool:
    """Whether two nested types are one; whether they may hold null does not matter."""
    return isinstance(have, dict) and isinstance(wanted, dict) and ddl(have) == ddl(wanted)


def _between_numbers(text: str, have: DeltaType, wanted: DeltaType) -> str:
    return text if have == wanted else f"CAST({text} AS {ddl(wanted)})"


def _iso8601(instant: str) -> str:
    """Its text of a time: three or six digits of a fraction, none if there is no fraction."""
    if instant.startswith("timestamp_seconds("):
        return f"date_format({instant}, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
    text = f"date_format({instant}, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\")"
    return f"regexp_replace(regexp_replace({text}, '000Z$', 'Z'), '[.]000Z$', 'Z')"


def type_in_words(type_: DeltaType) -> str:
    """A type in errors."""
    return ddl(type_) if not isinstance(type_, str) or type_ not in (INSTANT, MICROS, DAY) else "a time"


def literal(value: object) -> TypedSql:
    """A literal of JMESPath."""
    match value:
        case bool():
            return TypedSql(str(value).lower(), "boolean")
        case int():
            return TypedSql(str(value), "long")
        case float():
            return TypedSql(f"{value!r}D", "double")
        case str():
            return TypedSql(text_literal(value), "string")
    raise NotTranslated(f"a literal {value!r}; {BY_HAND}")
