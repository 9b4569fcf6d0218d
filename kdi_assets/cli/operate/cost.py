"""`kdi cost`: what drains, replays, refinements and compactions used, by table, owner or day. No Spark, no broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.options import AsJson, Defs, TableNames, day, refuse_reversed_dates, selected_tables
from kdi_assets.cli.output import exit_if_refused, print_json, print_refusal, table_text
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.settings import Prices, Settings
from kdi_assets.wording import byte_size, counted

if TYPE_CHECKING:
    from kdi_assets.operate.monitoring.costs import Usage

GroupBy = Literal["stream", "owner", "day"]
HEAD = ("COMMITS", "CPU SECONDS", "READ", "WRITTEN", "FILES", "PUTS", "COST")
NO_OWNER = "-"


def cost(
    tables: TableNames = None,
    days: Annotated[int | None, typer.Option(min=1, help="This many days up to today, in UTC; default: 7.")] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", metavar="DATE", parser=day, help="The first day, UTC.")
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", metavar="DATE", parser=day, help="The last day, inclusive.")
    ] = None,
    by: Annotated[GroupBy, typer.Option(help="A line for each table, owner or day.")] = "stream",
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show what the commits of streams and refined tables used: CPU seconds, bytes, files and requests, and what that
    costs. Needs no Spark and no broker.

    CPU SECONDS: of drains, replays and refinements. READ: keys and values,
    uncompressed. WRITTEN and FILES: data files, with those of compactions. PUTS:
    requests that put these files and the log's entries. COST is only shown with
    prices: KDI_PRICES=cpu_second=PRICE,gb_read=PRICE,gb_written=PRICE,put=PRICE,
    or some of them. A table with several owners counts for them together. What
    is not counted: docs/cost.md.

    Exit codes: 0 shown; 1 documents are wrong, or a table's log cannot be read;
    75 a retry helps.
    """
    chosen, settings = selected_tables(tables or (), defs), Settings.from_environment()
    period = _period(days, first, last)
    groups, partial, refusals = _usage(chosen, settings.lake, period, by)
    if as_json:
        _print_json(groups, period, by, settings.prices, partial, refusals)
    else:
        typer.echo(_text(groups, period, by, settings.prices))
        for name in partial:
            typer.echo(f"{name}: not every commit of these days is in the log or its archive")
        for each in refusals.values():
            print_refusal(each)
    exit_if_refused(list(refusals.values()))


def _period(days: int | None, first: datetime | None, last: datetime | None) -> tuple[date, date]:
    """The first and the last day, both inclusive."""
    if days and (first or last):
        raise typer.BadParameter("give --days, or --from and --to", param_hint="--days")
    if last and not first:
        raise typer.BadParameter("give --from too", param_hint="--to")
    refuse_reversed_dates(first, last)
    until = last.date() if last else datetime.now(UTC).date()
    return (first.date() if first else until - timedelta(days=(days or 7) - 1)), until


def _usage(
    tables: Iterable[Stream | RefinedTableSpec], lake: str, period: tuple[date, date], by: GroupBy
) -> tuple[dict[str, Usage], list[str], dict[str, KdiError]]:
    """The usage by group; the tables some of whose commits are gone; the refusals by table."""
    from kdi_assets.operate.monitoring.costs import Usage, table_usage

    groups: defaultdict[str, Usage] = defaultdict(Usage)
    partial: list[str] = []
    refusals: dict[str, KdiError] = {}
    for table in tables:
        try:
            found = table_usage(table, lake, first=period[0], last=period[1])
        except KdiError as refused:
            refusals[table.name] = refused
            continue
        partial += [] if found.complete else [table.name]
        owners = ", ".join(sorted(table.owners)) or NO_OWNER
        for of_day, usage in found.by_day.items():
            groups[{"stream": table.name, "owner": owners, "day": of_day.isoformat()}[by]] += usage
    return dict(sorted(groups.items())), partial, refusals


def _text(groups: dict[str, Usage], period: tuple[date, date], by: GroupBy, prices: Prices | None) -> str:
    days = f"{period[0]} to {period[1]} (UTC)"
    if not groups:
        return f"{days}: no commits"
    total = _total(groups)
    head = {"stream": "TABLE", "owner": "OWNER", "day": "DAY"}[by]
    columns = HEAD if prices else HEAD[:-1]
    rows = [(name, *_cells(usage, prices)) for name, usage in [*groups.items(), ("total", total)]]
    notes = []
    if total.unmeasured:
        of = "of compactions and of earlier releases"
        notes.append(f"{counted(total.unmeasured, 'commit')} without CPU seconds: those {of} have none")
    if not prices:
        notes.append("no prices: set KDI_PRICES to see costs")
    return "\n".join([days, table_text((head, *columns), rows, align="<" + ">" * len(columns)), *notes])


def _cells(usage: Usage, prices: Prices | None) -> Sequence[object]:
    sizes = map(byte_size, (usage.read_bytes, usage.written_bytes))
    price = [f"{usage.cost(prices):,.4f}"] if prices else []
    return (usage.commits, f"{usage.cpu_seconds:,.1f}", *sizes, usage.files, usage.puts, *price)


def _total(groups: dict[str, Usage]) -> Usage:
    from kdi_assets.operate.monitoring.costs import Usage

    return sum(groups.values(), Usage())


def _print_json(
    groups: dict[str, Usage],
    period: tuple[date, date],
    by: GroupBy,
    prices: Prices | None,
    partial: Sequence[str],
    refusals: dict[str, KdiError],
) -> None:
    """An object for each group, then one for each table that was refused, then the total."""
    for name, usage in groups.items():
        print_json({"by": by, by: None if name == NO_OWNER else name, **_fields(usage, prices)})
    for table, refusal in refusals.items():
        print_json({"table": table, "error": refusal})
    facts = {"by": "total", "from": period[0], "to": period[1], **_fields(_total(groups), prices)}
    print_json({**facts, "incomplete_tables": partial})


def _fields(usage: Usage, prices: Prices | None) -> dict[str, object]:
    return {
        "commits": usage.commits,
        "commits_without_cpu_seconds": usage.unmeasured,
        "cpu_seconds": round(usage.cpu_seconds, 3),
        "read_bytes": usage.read_bytes,
        "written_bytes": usage.written_bytes,
        "files": usage.files,
        "puts": usage.puts,
        "cost": usage.cost(prices) if prices else None,
    }
