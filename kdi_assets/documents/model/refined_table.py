"""The typed description of a refined table: other tables' rows, transformed, kept up to date by what is new. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from difflib import get_close_matches
from hashlib import sha256
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from kdi_assets.documents.model.field_types import (
    Day,
    Days,
    Declared,
    ExpectationName,
    Owner,
    Sql,
    TablePath,
    TopColumn,
    WrittenAs,
    full_match,
    matching,
    wrong,
)
from kdi_assets.documents.model.limits import FreshnessLimits, cron_expression
from kdi_assets.documents.model.message_rules import ColumnContract, Expectation
from kdi_assets.documents.model.source_struct import KAFKA, SOURCE_STRUCTS
from kdi_assets.documents.model.upkeep import USUAL_FILE_BYTES, Upkeep
from kdi_assets.documents.model.variables import VARIABLE_LIMIT

ViewName = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "is not a name for a table in SQL", "letters, digits and '_'")
]
_is_function = full_match(
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
    "is not the name of a function",
    "module:function, e.g. my_project.silver:sessions",
)


def _sql_in_a_file(value: str, info: ValidationInfo) -> str:
    if value and info.data.get("sql"):
        raise wrong("there is sql as well", "keep one of sql and sql_file")
    return value


def _python_function(value: str, info: ValidationInfo) -> str:
    for other in ("sql", "sql_file"):
        if value and info.data.get(other):
            raise wrong(f"there is {other} as well", f"keep one of {other} and python")
    return _is_function(value) if value else value


Function = Literal["count", "sum", "min", "max", "avg", "count_distinct", "approx_count_distinct"]
"""What a measure computes of a group; ``approx_count_distinct`` by a sketch that can be merged."""
MERGEABLE: frozenset[Function] = frozenset(get_args(Function)) - {"count_distinct"}
"""Measures of which new rows can be added to a group without reading its old rows."""
_SUFFIXES: Mapping[Function, tuple[str, ...]] = {"avg": ("_sum", "_count"), "approx_count_distinct": ("_sketch",)}


@dataclass(frozen=True, slots=True)
class Upstream(Declared):
    """A table that is read, and its name in SQL."""

    table: Annotated[TablePath, Field(examples=["bronze/web_requests"])]
    """The table's path below the lake's root: of a stream, of another refined table, or any Delta table."""
    name: Annotated[ViewName, Field(validation_alias="as", examples=["web_requests"])] = ""
    """Its name in SQL; by default the last part of the path, with '_' for other characters than letters and digits."""

    @property
    def view(self) -> str:
        """The table's name in SQL."""
        return self.name or "".join(c if c.isalnum() else "_" for c in self.table.rpartition("/")[2])

    def uri(self, lake: str) -> str:
        """Path or URI of the table."""
        return f"{lake.rstrip('/')}/{self.table}"


def upstreams_of(value: object) -> object:
    """One path, or a list of paths and mappings."""
    tables = value if isinstance(value, list) else [value]
    return [{"table": table} if isinstance(table, str) else table for table in tables]


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
    """Spark SQL over the rows: among rows with the same keys and date, the one with the lowest value is kept."""
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


Mode = Append | ReplaceDates | Deduplicate | Upsert | Aggregate


@dataclass(frozen=True, slots=True)
class WrittenMode(Declared):
    """A mode by its name. Exactly one."""

    append: Annotated[Append | None, Field(examples=[{}])] = None
    """New rows of the upstream table become new rows."""
    replace_dates: Annotated[ReplaceDates | None, Field(examples=[{}])] = None
    """Dates that changed upstream are computed again. The rows of a date may come from rows of that date only."""
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


def _mode(written: WrittenMode, info: ValidationInfo) -> Mode:
    mode: Mode = next(given for f in fields(written) if (given := getattr(written, f.name)) is not None)
    if len(info.data.get("upstreams", ())) > 1 and not isinstance(mode, ReplaceDates):
        raise wrong("reads several tables, whose rows do not arrive together", "mode: replace_dates", field="mode")
    if isinstance(mode, Upsert) and mode.envelope:
        _refuse_beside_envelope(mode, mode.envelope, info.data)
    if info.data.get("partition_by"):
        _refuse_without_date(mode)
    return mode


def _refuse_without_date(mode: Mode) -> None:
    match mode:
        case Aggregate(by=columns):
            name, field = "aggregate", "by"
        case Upsert(column_list=columns) if columns:
            name, field = "upsert", "column_list"
        case _:
            return
    if "date" not in columns:
        said, right = f"is date, and mode {name} makes no column date", f"date in `{field}`, or partition_by: null"
        raise wrong(said, right, field="partition_by")


def _refuse_beside_envelope(mode: Upsert, envelope: str, others: Mapping[str, Any]) -> None:
    if mode.apply_as_deletes:
        raise wrong(f"envelope {envelope} says which changes delete", "no apply_as_deletes", field="mode")
    if others.get("python"):
        raise wrong("mode has an envelope, which is read by SQL", "sql in place of python", field="python")
    if envelope == "debezium" and others.get("partition_by"):
        raise wrong("the rows of a Debezium envelope have no date", "partition_by: null", field="partition_by")


def _unique_views(upstreams: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
    views = [upstream.view.lower() for upstream in upstreams]
    if twice := next((view for view in views if views.count(view) > 1), None):
        raise wrong(f"two tables are called {twice} in SQL", "name one of them: {table: …, as: NAME}", field="from")
    return upstreams


@dataclass(frozen=True, slots=True)
class RefinedTableSpec(Declared):
    """A table that is made of the rows of other tables, and kept up to date by what is new in them."""

    table: Annotated[TablePath, Field(examples=["silver/sessions"])]
    """The table's path below the lake's root ($KDI_LAKE). It is the name of the refined table and its asset."""
    upstreams: Annotated[
        tuple[Upstream, ...],
        BeforeValidator(upstreams_of, json_schema_input_type=Any),
        AfterValidator(_unique_views),
        Field(min_length=1, validation_alias="from", examples=["bronze/web_requests"]),
    ]
    """The tables that are read: a path, or a list of paths or of {table: PATH, as: NAME}. Each is a view in `sql`,
    named by `as` or by the last part of its path."""
    sql: Annotated[str, Field(examples=["SELECT date, host, session_id FROM web_requests WHERE status < 500"])] = ""
    """Spark SQL over the tables of `from`; by default all columns of the one table."""
    sql_file: Annotated[str, AfterValidator(_sql_in_a_file), Field(examples=["sessions.sql"])] = ""
    """In place of `sql`: a file with it; the path begins at the folder of this document."""
    python: Annotated[str, AfterValidator(_python_function), Field(examples=["my_project.silver:sessions"])] = ""
    """In place of `sql`: module:function of a function that gets the DataFrames of `from`, in their order, and returns
    a DataFrame."""
    partition_by: Annotated[Literal["date"] | None, Field(examples=["date"])] = "date"
    """date: the rows that the mode makes have a column `date`, of type date, by which table and asset are partitioned,
    so `by` or `column_list` has it; null: the table has no partitions."""
    start: Annotated[Day, Field(examples=["2020-01-01"])] = date(2020, 1, 1)
    """The first date of the asset's partitions; not before the first date of the upstream tables."""
    expectations: Annotated[
        Mapping[ExpectationName, Expectation],
        Field(examples=[{"requests_are_counted": {"sql": "requests > 0", "then": "fail"}}]),
    ] = field(default_factory=dict)
    """What every new row should meet: name to a condition. warn counts the rows that do not; fail stops the run before
    it commits. Rows of a refined table have no dead letters."""
    contract: Annotated[ColumnContract, Field(examples=[{"new_columns": "freeze", "types": "freeze"}])] = (
        ColumnContract()
    )
    """What happens if the rows get other columns than the table has, because a document or an upstream table
    changed."""
    cron: Annotated[str | None, AfterValidator(cron_expression), Field(examples=["0 * * * *"]), VARIABLE_LIMIT] = None
    """Times (UTC) at which what is new is refined. Without it, a run starts as soon as an upstream table has new
    rows."""
    freshness: Annotated[FreshnessLimits | None, Field(examples=[{"warn": "1 hour", "fail": "6 hours"}])] = None
    """How old the newest materialization may be, and how long something new upstream may wait. It makes a freshness
    policy in Dagster."""
    target_file_size: Annotated[int | None, Field(strict=True, ge=1_048_576, examples=[134_217_728])] = None
    """Bytes of the Parquet files that upkeep makes of small files, by default 128 MiB."""
    upkeep: Annotated[Upkeep, Field(examples=[{"small_files": 50, "cluster_by": ["session_id"]}])] = Upkeep()
    """How files are compacted, and whether the scheduled upkeep includes the table."""
    properties: Annotated[
        Mapping[str, str], Field(examples=[{"delta.deletedFileRetentionDuration": "interval 14 days"}])
    ] = field(default_factory=dict)
    """Delta table properties, set when the table is created."""
    description: Annotated[str, Field(examples=["Sessions without duplicates"])] = ""
    """What the table holds, for its readers."""
    owners: Annotated[tuple[Owner, ...], Field(examples=[["team:web"]])] = ()
    """Teams (team:name) and mail addresses that own the table."""
    # The last field: its validation needs the other fields, and pydantic knows only those that come before.
    mode: Annotated[
        Mode,
        WrittenAs(
            Annotated[WrittenMode, BeforeValidator(mode_by_name, json_schema_input_type=str | WrittenMode)], _mode
        ),
        Field(
            validate_default=True, examples=["append", {"aggregate": {"by": ["date"], "measures": {"rows": "count"}}}]
        ),
    ] = Append()
    """How the table follows its upstream tables: append, replace_dates, deduplicate, upsert or aggregate."""

    @property
    def name(self) -> str:
        """The table's path: the refined table's name in commands, messages and metadata."""
        return self.table

    @property
    def mode_name(self) -> str:
        """The mode as documents write it."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self.mode).__name__).removeprefix("_")

    @property
    def by_date(self) -> bool:
        """Whether table and asset are partitioned by date."""
        return self.partition_by == "date"

    @property
    def compacted_file_bytes(self) -> int:
        """The size of files that compaction aims at."""
        return self.target_file_size or USUAL_FILE_BYTES

    def table_uri(self, lake: str) -> str:
        """Path or URI of the table."""
        return f"{lake.rstrip('/')}/{self.table}"

    def deletes_uri(self, lake: str) -> str:
        """Path or URI of the table with the keys and sequences of deletes, which a late change must not bring back."""
        return f"{self.table_uri(lake)}_deletes"

    def definition(self, function_source: str = "") -> str:
        """A digest of all that decides which rows the table has; another one means that all rows are computed again.

        Args:
            function_source: The source text of the function that ``python`` names.
        """
        said = {name: value for name, value in asdict(self.mode).items() if value is not None}
        if isinstance(self.mode, Upsert):
            said["columns"] = "sequence_at"  # tables of releases without this column are computed again
        said.pop("remember_deletes", None)  # decides about changes that come later, and not about the rows of now
        mode = {"mode": type(self.mode).__name__, **said}
        tables = [(upstream.table, upstream.view) for upstream in self.upstreams]
        text = json.dumps([tables, self.sql, self.python, function_source, mode, self.partition_by], default=list)
        return sha256(text.encode()).hexdigest()[:16]
