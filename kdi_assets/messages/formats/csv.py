"""CSV: one line per message, without a header; the columns are those of the DDL, in its order.

Spark's ``from_csv`` does not validate: it fills a line that was cut off with nulls, reads unclosed quotation marks and
line ends outside of quotation marks as text, and rounds numbers. So all columns are read as text, with a marker
appended to the line that must come out in a column of its own after them; then the texts are judged and cast here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kdi_assets.documents.model.message_format import Csv
from kdi_assets.messages.formats.decoder import DECODED, DOCUMENT, MISFIT_NUMBER, PAYLOAD, RECORD, Decoder
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.plain import is_utf8
from kdi_assets.messages.formats.rules import Rule, any_of, literal
from kdi_assets.runtime.spark_internals import jvm_type, kernel_call, kernel_object, try_eval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
_PATTERNS = {
    "date": f"^{_DATE}$",
    "timestamp_ntz": f"^{_DATE}({_TIME})?$",
    "timestamp": f"^{_DATE}({_TIME}(Z|[+-][0-9]{{2}}(:[0-9]{{2}})?)?)?$",
}
_TEXT = f"CAST({PAYLOAD} AS STRING)"
_LINE = f"trim(TRAILING '\\r\\n' FROM {_TEXT})"
_UTF8 = "_kdi_utf8"
_MARKER = "k9f1c7e52"
"""No line has it by chance."""
_EMPTY = "k7e52"
"""Spark's null value: without it, nothing between two delimiters and ``""`` would be read as the same."""
_INTEGER = literal(r"^\s*[+-]?[0-9]+\s*$")
_MISFIT_REASONS = ("out_of_range", "too_precise", "wrong_type")


@dataclass(frozen=True)
class CsvDecoder(Decoder):
    """Lines by a declared record; ``_kdi_document`` holds the texts of the columns and of the marker's column."""

    format: Csv

    def record_type(self, ddl: str) -> StructType:
        """The DDL's type; ``NOT NULL`` columns must not be empty."""
        from pyspark.sql import types as t

        record = cast(t.StructType, t.StructType.fromDDL(ddl))
        known = (t.StringType, t.IntegralType, t.FractionalType, t.BooleanType, t.DateType, t.TimestampType)
        for field in record.fields:
            if not isinstance(field.dataType, (*known, t.TimestampNTZType)):
                one = f"{field.name} is {field.dataType.simpleString()}"
                raise FormatMistake("schema", f"{one}; a column of CSV is text, a number, a boolean or a time")
        return record

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        faults = [Rule("blank", f"{_LINE} = ''"), *self._line_rules, *self._value_rules(record)]
        values = ", ".join(
            f"{literal(f.name)}, {_typed(self._text(n), f.dataType)}" for n, f in enumerate(record.fields)
        )
        decoded = f"{_complete(record)} AND {_UTF8} AND NOT ({any_of(faults)})"
        spark = messages.sparkSession
        return (
            messages.withColumn(_UTF8, is_utf8(spark))
            .withColumn(DOCUMENT, try_eval(spark, self._columns(record)))
            .withColumn(MISFIT_NUMBER, self._misfit(spark, record))
            .withColumn(DECODED, F.expr(decoded))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN named_struct({values}) END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        return [
            Rule("blank", f"length(trim(BOTH ' \\t\\r\\n' FROM {_TEXT})) = 0"),
            Rule("invalid_utf8", f"NOT is_valid_utf8({_TEXT})"),
            Rule("malformed_csv", f"{DOCUMENT} IS NULL"),
            *self._line_rules,
            *_column_rules(record),
            *self._value_rules(record),
            Rule("malformed_csv", "true"),
        ]

    def _columns(self, record: StructType) -> str:
        """Spark SQL: the texts of the columns and of the marker's column; raises at a misplaced quotation mark."""
        columns = ", ".join(f"{_column(n)} string" for n in range(len(record.fields) + 1))
        options = ", ".join(f"{literal(key)}, {literal(value)}" for key, value in self._options.items())
        line = f"concat({_LINE}, {literal(self.format.delimiter + _MARKER)})"
        return f"from_csv({line}, {literal(columns)}, map({options}))"

    @property
    def _line_rules(self) -> list[Rule]:
        several = Rule("several_lines", f"contains({_LINE}, '\\n') AND contains({self._unquoted}, '\\n')")
        # Spark takes no quotation mark as this character.
        return [several] if self.format.quote else [several, Rule("malformed_csv", f"contains({_LINE}, char(0))")]

    @property
    def _unquoted(self) -> str:
        """Spark SQL: the line without its quoted texts."""
        if not self.format.quote:
            return _LINE
        # Without repeated groups: Java matches them by recursion, and a long message would end the task.
        delimiter, quote, escape = map(re.escape, (self.format.delimiter, self.format.quote, self.format.escape))
        plain = _LINE
        if quote != escape:
            plain = f"regexp_replace({_LINE}, {literal(f'{escape}[{quote}{escape}]')}, '')"
        # A quotation mark after another one continues the same text.
        quoted = f"(?<=^|{delimiter}|{quote}){quote}[^{quote}]*+{quote}"
        return f"regexp_replace({plain}, {literal(quoted)}, '')"

    @property
    def _options(self) -> dict[str, str]:
        return {
            "sep": self.format.delimiter,
            "quote": self.format.quote,
            "escape": self.format.escape,
            "mode": "PERMISSIVE",
            "unescapedQuoteHandling": "RAISE_ERROR",
            "nullValue": _EMPTY,
            "multiLine": "true",  # otherwise Spark changes line ends inside quotation marks
            "lineSep": "\n",  # otherwise Spark guesses it from the messages
        }

    def _misfit(self, spark: SparkSession, record: StructType) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        fractions = [(n, f) for n, f in enumerate(record.fields) if _is_fraction(f.dataType)]
        if not fractions:
            return F.lit(0)
        numbers = kernel_object(spark, "kdi.csv.Numbers", jvm_type(spark, StructType([f for _, f in fractions])))
        texts = f"array({', '.join(self._text(n) for n, _ in fractions)})"
        return kernel_call(spark, "kdi.csv.Numbers", "firstMisfit", "int", texts, numbers)

    def _text(self, number: int) -> str:
        """Spark SQL: the text of a column; null where it is empty."""
        text = f"{DOCUMENT}.{_column(number)}"
        null = self.format.null_text
        return f"nullif(coalesce({text}, ''), {literal(null)})" if null else text

    def _value_rules(self, record: StructType) -> Iterator[Rule]:
        """Why the text of a column does not fit."""
        fractions = 0
        for number, field in enumerate(record.fields):
            text = self._text(number)
            if not field.nullable:
                yield Rule("missing_field", f"{text} IS NULL", field.name)
            if _is_fraction(field.dataType):
                for code, reason in enumerate(_MISFIT_REASONS, 4 * fractions + 1):
                    yield Rule(reason, f"{MISFIT_NUMBER} = {code}", field.name)
                fractions += 1
            else:
                yield from _rules_of(text, field.dataType, field.name)


def _complete(record: StructType) -> str:
    """Spark SQL, never null: whether the marker is in its column."""
    return f"coalesce({DOCUMENT}.{_column(len(record.fields))} = '{_MARKER}', false)"


def _column_rules(record: StructType) -> list[Rule]:
    """Why the marker is not in its column."""
    texts = [f"{DOCUMENT}.{_column(n)}" for n in range(len(record.fields))]
    early = " OR ".join(f"coalesce({text} = '{_MARKER}', false)" for text in texts)
    swallowed = " OR ".join(f"coalesce(endswith({text}, '{_MARKER}'), false)" for text in texts)
    incomplete = f"NOT {_complete(record)}"
    return [
        Rule("too_few_columns", f"{incomplete} AND ({early})"),
        Rule("malformed_csv", f"{incomplete} AND ({swallowed})"),
        Rule("too_many_columns", incomplete),
    ]


def _column(number: int) -> str:
    return f"c{number}"


def _typed(text: str, declared: DataType) -> str:
    kind = declared.simpleString()
    return text if kind == "string" else f"try_cast({text} AS {kind})"


def _is_fraction(declared: DataType) -> bool:
    from pyspark.sql.types import FractionalType

    return isinstance(declared, FractionalType)


def _rules_of(text: str, declared: DataType, column: str) -> Iterator[Rule]:
    """Why a text does not fit the column's type, which is not of fractions."""
    from pyspark.sql import types as t

    lost = f"{text} IS NOT NULL AND {_typed(text, declared)} IS NULL"
    match declared:
        case t.StringType():
            return
        case t.TimestampType() | t.TimestampNTZType() | t.DateType():
            yield from _time_rules(text, declared, column)
        case t.BooleanType():
            yield Rule("wrong_type", f"lower(trim({text})) NOT IN ('true', 'false')", column)
        case _:
            yield Rule("out_of_range", f"{lost} AND {text} RLIKE {_INTEGER}", column)
            yield Rule("wrong_type", lost, column)


def _time_rules(value: str, declared: DataType, path: str) -> list[Rule]:
    """Why a text is not a date or timestamp."""
    kind = declared.typeName()
    rules = [
        Rule("wrong_type", f"NOT {value} RLIKE {literal(_PATTERNS[kind])}", path),
        Rule("out_of_range", f"{value} IS NOT NULL AND try_cast({value} AS {kind}) IS NULL", path),
    ]
    if kind != "date":
        rules.append(Rule("too_precise", f"{value} RLIKE '[.][0-9]{{6}}[0-9]*[1-9]'", path))
    return rules
