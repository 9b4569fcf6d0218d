"""The modes of refined tables: how new rows upstream become rows of the table. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from kdi_assets.documents.model.field_types import Days, Declared, Sql, TopColumn, wrong
from kdi_assets.documents.model.source_struct import KAFKA, SOURCE_STRUCTS

Function = Literal["count", "sum", "min", "max", "avg", "count_distinct", "approx_count_distinct"]
"""What a measure computes of a group; ``approx_count_distinct`` by a sketch that can be merged."""
_SUFFIXES: Mapping[Function, tuple[str, ...]] = {"avg": ("_sum", "_count"), "approx_count_distinct": ("_sketch",)}
OFFSET = KAFKA.path("offset")
"""The default order: the offset, also of rows whose struct has another name."""
OFFSETS = tuple(struct.path("offset") for struct in SOURCE_STRUCTS)


@dataclass(frozen=True, slots=True)
class Append(Declared):
    """New rows of the upstream table become new rows."""


@dataclass(frozen=True, slots=True)
class ReplaceDates(Declared):
    """Dates that changed upstream are computed again, and replaced in one commit."""


@dataclass(frozen=True, slots=True)
class Deduplicate(Declared):
    """Of rows with the same keys within some dates, the first one is kept."""

    keys: Annotated[tuple[TopColumn, ...], Field(min_length=1, examples=[["session_id"]])]
    """Columns that identify a row."""
    order_by: Annotated[Sql, Field(examples=["at"])] = OFFSET
    """Spark SQL over the rows: among rows with the same keys and date, the one with the lowest value is kept. Text is
    ordered by letters: '10' comes before '9'."""
    window: Annotated[Days, Field(examples=["2 days"])] = 1
    """How many dates: a row is a duplicate of rows of its own date and of the dates before it."""


@dataclass(frozen=True, slots=True)
class Upsert(Declared):
    """Rows are changes: of the rows with the same keys, the newest holds."""

    keys: Annotated[tuple[TopColumn, ...], Field(min_length=1, examples=[["customer_id"]])]
    """Columns that identify what a row is about."""
    sequence_by: Annotated[Sql, Field(examples=["updated_at"])] = OFFSET
    """Spark SQL over the rows: of two changes, the one with the higher value is newer; of two with one value, the later
    one in Kafka. Late changes are put in order by it. By default the offset, which orders the changes of one topic
    partition."""
    apply_as_deletes: Annotated[str, Field(examples=["op = 'd'"])] = ""
    """Spark SQL condition over the rows: the change deletes its keys."""
    column_list: Annotated[tuple[str, ...], Field(examples=[["customer_id", "name", "city"]])] = ()
    """Columns that the table keeps; by default all columns of the rows."""
    scd_type: Annotated[Literal[1, 2], Field(examples=[2])] = 1
    """1: one row for each key; 2: a row for each change, with valid_from and valid_to."""
    envelope: Annotated[Literal["debezium", "tombstones"] | None, Field(examples=["debezium"])] = None
    """The shape of the changes. debezium: columns before, after and op; the table has the columns of `after`, and op d
    deletes. tombstones: the newest state; a row whose column `tombstone` is true deletes."""
    unavailable_value: Annotated[str, Field(min_length=1, examples=["__debezium_unavailable_value"])] = (
        "__debezium_unavailable_value"
    )
    """Of Debezium's envelope: the connector's `unavailable.value.placeholder`, which stands for a large value that the
    change did not touch. The table keeps the value that it had."""
    remember_deletes: Annotated[Days | None, Field(examples=["30 days"])] = None
    """How long the keys and sequences of deletes are remembered; by default for ever. An older change that arrives
    later than this brings its row back."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A function of the rows of a group; ``of`` is Spark SQL over a row, ``1`` for ``count`` of all rows."""

    function: Function
    of: str = "1"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of the columns that the table keeps beside that of the measure, which has the measure's name."""
        return _SUFFIXES.get(self.function, ())


def measure_of(value: object) -> object:
    """A measure as documents write it: ``count``, or ``{sum: bytes}``."""
    functions = get_args(Function)
    match value:
        case "count":
            return Measure("count")
        case dict() if len(value) == 1 and isinstance(expression := next(iter(value.values())), str):
            (function,) = value
            if function in functions and expression.strip():
                return Measure(function, expression)
    raise wrong(f"{value!r} is not a measure", f"count, or e.g. {{sum: bytes}}; functions: {', '.join(functions)}")


def _columns_once(measures: Mapping[str, Measure], info: ValidationInfo) -> Mapping[str, Measure]:
    """Spark takes names that differ in case for one."""
    kept = [f"{name}{suffix}" for name, measure in measures.items() for suffix in measure.suffixes]
    names = [name.lower() for name in (*info.data.get("by", ()), *measures, *kept)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        of_measures = "avg and approx_count_distinct keep more columns, e.g. ms_sum and ms_count of ms"
        why = f" ({of_measures})" if twice in (name.lower() for name in kept) else ""
        raise wrong(f"two columns are called {twice}{why}", "a name of its own for each")
    return measures


@dataclass(frozen=True, slots=True)
class Aggregate(Declared):
    """Rows are grouped; the groups of new rows are brought up to date, others are not touched."""

    by: Annotated[tuple[TopColumn | Literal["date"], ...], Field(min_length=1, examples=[["date", "host"]])]
    """Columns of the group."""
    measures: Annotated[
        Mapping[
            TopColumn, Annotated[Measure, BeforeValidator(measure_of, json_schema_input_type=str | dict[str, str])]
        ],
        AfterValidator(_columns_once),
        Field(min_length=1, examples=[{"requests": "count", "errors": {"sum": "int(status >= 500)"}}]),
    ]
    """Column to what it holds: count, or {function: Spark SQL over a row} with sum, min, max, avg, count_distinct or
    approx_count_distinct."""

    @property
    def is_mergeable(self) -> bool:
        """Whether new rows can be added to their groups without reading old rows of these."""
        return all(measure.function != "count_distinct" for measure in self.measures.values())


Mode = Append | ReplaceDates | Deduplicate | Upsert | Aggregate


@dataclass(frozen=True, slots=True)
class WrittenMode(Declared):
    """A mode by its name. Exactly one."""

    append: Annotated[Append | None, Field(examples=[{}])] = None
    """New rows of the upstream table become new rows."""
    replace_dates: Annotated[ReplaceDates | None, Field(examples=[{}])] = None
    """Dates that changed upstream are computed again. If rows may be made of rows of other dates, all are computed and
    compared, and the dates that differ are replaced."""
    deduplicate: Annotated[Deduplicate | None, Field(examples=[{"keys": ["session_id"]}])] = None
    """Of rows with the same keys within some dates, the first one is kept."""
    upsert: Annotated[Upsert | None, Field(examples=[{"keys": ["customer_id"], "sequence_by": "updated_at"}])] = None
    """Rows are changes: of the rows with the same keys, the newest holds."""
    aggregate: Annotated[
        Aggregate | None, Field(examples=[{"by": ["date", "host"], "measures": {"requests": "count"}}])
    ] = None
    """Rows are grouped; the groups of new rows are brought up to date."""


def mode_by_name(value: object) -> object:
    """A mode as documents write it: ``append`` is short for ``{append: {}}``."""
    names = [f.name for f in fields(WrittenMode)]
    if isinstance(value, Append):  # the default
        return {"append": {}}
    if isinstance(value, str) and value in names:
        return {value: {}}
    if isinstance(value, dict) and len(value) == 1:
        return {name: {} if given is None else given for name, given in value.items()}
    if isinstance(value, str) and (close := get_close_matches(value, names, n=1)):
        raise wrong(f"{value!r} is not a mode", f"did you mean {close[0]}?")
    raise wrong(f"{value!r} is not a mode", f"one of {', '.join(names)}, e.g. append, or upsert: {{keys: [id]}}")
