"""The typed description of a refined table: other tables' rows, transformed, kept up to date by what is new. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from kdi_assets.documents.model.field_types import (
    Day,
    Days,
    Declared,
    ExpectationName,
    NotWritten,
    Owner,
    TablePath,
    WrittenAs,
    at_least_a_day,
    full_match,
    matching,
    wrong,
)
from kdi_assets.documents.model.in_lake import InLake, LakeRoot
from kdi_assets.documents.model.limits import FreshnessLimits, cron_expression
from kdi_assets.documents.model.message_rules import ColumnContract, Expectation
from kdi_assets.documents.model.refined_modes import (
    Aggregate,
    Append,
    Mode,
    ReplaceDates,
    Upsert,
    WrittenMode,
    mode_by_name,
)
from kdi_assets.documents.model.upkeep import USUAL_FILE_BYTES, Upkeep, first_kept_date
from kdi_assets.documents.model.variables import VARIABLE_LIMIT

NEEDS_BY_DATE = "append, replace_dates, deduplicate, or aggregate by date, with partition_by: date"
"""The modes that are computed by date."""
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


@dataclass(frozen=True, slots=True)
class Upstream(Declared, InLake):
    """A table that is read, and its name in SQL."""

    table: Annotated[TablePath, Field(examples=["bronze/web_requests"])]
    """The table's path below the lake's root: of a stream, of another refined table, or any Delta table."""
    name: Annotated[ViewName, Field(validation_alias="as", examples=["web_requests"])] = ""
    """Its name in SQL; by default the last part of the path, with '_' for other characters than letters and digits."""
    lake: Annotated[str, NotWritten()] = ""

    @property
    def view(self) -> str:
        """The table's name in SQL."""
        return self.name or "".join(c if c.isalnum() else "_" for c in self.table.rpartition("/")[2])


def upstreams_of(value: object) -> object:
    """One path, or a list of paths and mappings."""
    tables = value if isinstance(value, list) else [value]
    return [{"table": table} if isinstance(table, str) else table for table in tables]


def _mode(written: WrittenMode, info: ValidationInfo) -> Mode:
    mode: Mode = next(given for f in fields(written) if (given := getattr(written, f.name)) is not None)
    if len(info.data.get("upstreams", ())) > 1 and not isinstance(mode, ReplaceDates):
        raise wrong("reads several tables, whose rows do not arrive together", "mode: replace_dates", field="mode")
    if isinstance(mode, Upsert) and mode.envelope:
        _refuse_beside_envelope(mode, mode.envelope, info.data)
    if info.data.get("partition_by"):
        _refuse_without_date(mode)
    if info.data.get("keep_days") is not None and not _is_computed_by_date(mode, info.data.get("partition_by")):
        raise wrong("is not computed by date, which `keep` needs", NEEDS_BY_DATE, field="keep")
    return mode


def _is_computed_by_date(mode: Mode, partition_by: str | None) -> bool:
    grouped = not isinstance(mode, Aggregate) or "date" in mode.by
    return partition_by == "date" and grouped and not isinstance(mode, Upsert)


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
class RefinedTableSpec(Declared, InLake):
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
    a DataFrame. If its lines change, all rows are computed again; after another change in what it calls, run
    `kdi refine TABLE --rebuild`."""
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
    keep_days: Annotated[
        Days | None, AfterValidator(at_least_a_day), Field(validation_alias="keep", examples=["400 days"])
    ] = None
    """How many days (UTC) rows are kept, in a mode that is computed by date. The nightly upkeep removes rows with older
    dates, once every table that is made of the table has consumed them, and no refinement brings them back. Without it,
    rows are kept for ever, also those that the tables upstream keep no longer."""
    upkeep: Annotated[Upkeep, Field(examples=[{"small_files": 50, "cluster_by": ["session_id"]}])] = Upkeep()
    """How files are compacted, and whether the scheduled upkeep includes the table."""
    lake: LakeRoot = ""
    """The root of the lake below which the table lies: a URI or the path of a folder, the same on every machine. By
    default $KDI_LAKE. The tables of `from` are found wherever their own documents say."""
    other_lakes: Annotated[tuple[str, ...], NotWritten()] = ()
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
    def is_computed_by_date(self) -> bool:
        """Whether the rows of a date can be computed again on their own."""
        return _is_computed_by_date(self.mode, self.partition_by)

    @property
    def needs_other_dates(self) -> str:
        """Why a date could not be computed without rows of other dates, which an upstream table may keep no longer.

        Empty if it could. Rows of one table may be joined to rows of another one with any date.
        """
        if not self.is_computed_by_date:
            return "is not computed by date"
        return "is made of several tables" if len(self.upstreams) > 1 else ""

    @property
    def compacted_file_bytes(self) -> int:
        """The size of files that compaction aims at."""
        return self.target_file_size or USUAL_FILE_BYTES

    def kept_from(self, now: datetime) -> date | None:
        """The oldest date (UTC) that is kept at ``now``; ``None``: all are."""
        return first_kept_date(self.keep_days, now)

    def deletes_uri(self, lake: str) -> str:
        """Path or URI of the table with the keys and sequences of deletes, which a late change must not bring back."""
        return f"{self.table_uri(lake)}_deletes"

    def definition(self, function_source: str = "", table_ids: Mapping[str, str] = MappingProxyType({})) -> str:
        """A digest of all that decides which rows the table has; another one means that all rows are computed again.

        Args:
            function_source: The source text of the function that ``python`` names.
            table_ids: Of upstream tables by their paths: Delta's ids in place of the paths. This digest stays the same
                if an upstream table is renamed, and the one with paths if it is replaced.
        """
        said = {name: value for name, value in asdict(self.mode).items() if value is not None}
        if isinstance(self.mode, Upsert):
            said["columns"] = "sequence_at"  # tables of releases without this column are computed again
        said.pop("remember_deletes", None)  # decides about changes that come later, and not about the rows of now
        mode = {"mode": type(self.mode).__name__, **said}
        tables = [(table_ids.get(upstream.table, upstream.table), upstream.view) for upstream in self.upstreams]
        text = json.dumps([tables, self.sql, self.python, function_source, mode, self.partition_by], default=list)
        return sha256(text.encode()).hexdigest()[:16]
