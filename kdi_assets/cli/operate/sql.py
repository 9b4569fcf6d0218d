"""`kdi sql`: one statement in the Spark session of the lake, with the locked versions of Spark and Delta."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.errors import QueryInterrupted, StatementFailed, StatementInterrupted, StatementRefused
from kdi_assets.cli.options import AsJson
from kdi_assets.cli.output import print_json_text, print_progress, refusal_in_json, table_text, text_excerpt
from kdi_assets.cli.session import lazy_session
from kdi_assets.errors import KdiError
from kdi_assets.runtime.errors import ApplicationEnded, NoExecutors
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS, CELL_CHARACTERS = 1_000, 200
"""Of a result, how much is shown."""
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Of Spark's ``to_json``, which leaves out nulls and cuts timestamps to milliseconds."""


def sql(
    statement: Annotated[str, typer.Argument(help="Spark SQL; a table is delta.`PATH`, with its whole path.")],
    as_json: AsJson = False,
) -> None:
    """Run one statement of Spark SQL: SELECT, DESCRIBE HISTORY, ALTER TABLE, RESTORE, …

    For what other commands advise and do not do themselves. A statement that
    writes is a commit like any other writer's: the next drain, refinement and
    `kdi audit` see it. Of a result, the first 1,000 rows are shown. --json has
    raw values; a column whose name is there before has its position too: id,
    id_2.

    Exit codes: 0 done; 1 someone must decide; 75 a retry helps.
    """
    running = WorkStep(doing="running the statement", commits=not _only_reads(statement))
    with (
        refusal_in_json(statement=statement, as_json=as_json),
        lazy_session("sql", as_json=as_json) as session,
        session.watched(),
        _interruption_named(statement),
        translated(partial(_error_of, statement)),
    ):
        spark = session()
        with announced(running):
            result = spark.sql(statement)
        _print_rows(result, as_json=as_json)


def _print_rows(result: DataFrame, *, as_json: bool) -> None:
    from pyspark.sql import functions as F

    if not result.columns:
        print_progress("done")
        return
    if as_json:
        unique = result.toDF(*_unique(result.columns))
        written = unique.select(F.to_json(F.struct("*"), JSON_OPTIONS)).limit(ROWS + 1).collect()
        for (text,) in written[:ROWS]:
            print_json_text(text)  # as Spark wrote it: Python's numbers would lose digits of decimals
        _say_if_cut(len(written))
        return
    # Positions, because a result may have two columns of one name.
    named = result.toDF(*(f"c{i}" for i in range(len(result.columns))))
    rows = named.select(*(F.col(name).cast("string") for name in named.columns)).limit(ROWS + 1).collect()
    cells = [[None if cell is None else text_excerpt(cell, CELL_CHARACTERS) for cell in row] for row in rows[:ROWS]]
    typer.echo(table_text(result.columns, cells, align="<" * len(result.columns)))
    _say_if_cut(len(rows))


def _unique(names: Sequence[str]) -> list[str]:
    """The names; one that is there before, in any case, gets its position: ``id``, ``id_2``."""
    lowered = [name.lower() for name in names]
    unique = list(names)
    for at, name in enumerate(names):
        if name.lower() in lowered[:at]:
            unique[at] = f"{name}_{at + 1}"
            while unique[at].lower() in lowered:
                unique[at] += "_"
    return unique


def _say_if_cut(rows: int) -> None:
    if rows > ROWS:
        print_progress(f"the first {ROWS:,} rows; LIMIT and ORDER BY choose others")


def _error_of(statement: str, failure: SparkFailure) -> KdiError:
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(failure.exception, AnalysisException | ParseException):
        return StatementRefused(detail=first_line(failure.exception).rstrip("; "))
    if failure.kind == FailureKind.TRANSIENT:
        return (QueryInterrupted if _only_reads(statement) else StatementInterrupted)(detail=failure.root)
    needs = {
        FailureKind.CONSTRAINT: "the rows hold the table's constraints",
        FailureKind.WORKER: "the Python of Spark's workers is mended",
        FailureKind.ROWS: "the statement fits the rows",
    }
    return StatementFailed(detail=failure.root, needs=failure.needs or needs[failure.kind])


@contextmanager
def _interruption_named(statement: str) -> Iterator[None]:
    """Name what the cluster did in the error of a statement that may be committed: other errors would repeat it."""
    try:
        yield
    except (ApplicationEnded, NoExecutors) as ended:
        if _only_reads(statement):
            raise
        raise StatementInterrupted(detail=ended.message_parts()[0]) from ended


def _only_reads(statement: str) -> bool:
    """Whether a statement is sure to write nothing."""
    begins = re.match(r"\s*(SELECT|SHOW|DESCRIBE|WITH)\b", statement, re.IGNORECASE)
    if begins and begins[1].upper() == "WITH":  # which writing statements may begin with too
        return not re.search(r"\b(DELETE|INSERT|MERGE|UPDATE)\b", statement, re.IGNORECASE)
    return bool(begins)
