"""Options that several commands share, and how their values are read; a wrong value is a ``typer.BadParameter``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from kdi_assets.documents.loading.loader import LoadedFolder

TableOfAnyKind = Stream | RefinedTableSpec | ServedTableSpec


def _also_before_the_command(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """The option's value; if the command has none, the value that was written before the command: `kdi --json plan`."""
    if value is None or value is False:
        return context.find_root().params.get(parameter.name or "", value)
    return value


def day(text: str) -> datetime:
    """Read ``2026-01-31``, a day of UTC."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        written = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{4})", text)
        example = "{2}-{1:0>2}-{0:0>2}".format(*written.groups()) if written else "2026-01-31"
        raise typer.BadParameter(f"{text!r} is not a date; write year, month and day: {example}") from None


StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The table's path, its last part, or the topic.")]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The path of a stream's or refined table, its last part, or a topic.")
]
StreamNames = Annotated[
    list[str] | None, typer.Argument(metavar="STREAM", help="Tables' paths, last parts, or topics; default: all.")
]
TableNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="Paths of streams' or refined tables, last parts, or topics; default: all."),
]
NamesOfAllKinds = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="Paths of tables of any kind, last parts, or topics; default: all."),
]
Defs = Annotated[
    Path | None,
    typer.Option(
        "--defs",
        callback=_also_before_the_command,
        help="Folder of the YAML documents; default: KDI_DEFS.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", callback=_also_before_the_command, help="Print JSON: one object on each line.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only show it.")]


LocalPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Preferred port; if it is in use, a free one is taken.")
]


def refuse_no_or_both(names: Sequence[str] | None, *, all_: bool, what: str = "tables") -> None:
    """Refuse a command with neither names nor ``--all``, or with both."""
    if bool(names) == all_:
        raise typer.BadParameter(f"name {what}, or give --all" if not all_ else "give --all, or names, not both")


def selected_streams(names: Sequence[str], defs: Path | None) -> list[Stream]:
    """The streams with these names; without names, all streams.

    Raises:
        Mistakes, DefsFolderMissing: The documents cannot be read.
        UnknownStream, AmbiguousStream: A name matches no stream, or several.
        NotAStream: A name is that of a refined table.
    """
    from kdi_assets.documents.loading.errors import NotAStream, UnknownStream
    from kdi_assets.documents.loading.loader import load_folder, select_refined, select_streams

    loaded = load_folder(defs)
    if not names:
        return list(loaded.streams.values())
    try:
        return select_streams(loaded.streams, names)
    except UnknownStream as unknown:
        with suppress(UnknownStream):
            (refined,) = select_refined(loaded.refined, [unknown.name])
            raise NotAStream(name=refined.name, upstreams=tuple(u.table for u in refined.upstreams)) from None
        raise


def selected_stream(name: str, defs: Path | None) -> Stream:
    """The stream with this name; raises like ``selected_streams``."""
    return selected_streams([name], defs)[0]


def selected_table(name: str, defs: Path | None) -> Stream | RefinedTableSpec:
    """The stream or the refined table with this name; raises like ``selected_streams``."""
    from kdi_assets.documents.loading.loader import load_folder, select_table

    return select_table(load_folder(defs), name)


def selected_tables(names: Sequence[str], defs: Path | None) -> list[Stream | RefinedTableSpec]:
    """The streams and refined tables with these names; without names, all. Raises like ``selected_streams``."""
    from kdi_assets.documents.loading.loader import load_folder, select_table

    loaded = load_folder(defs)
    if not names:
        return [*loaded.streams.values(), *loaded.refined.values()]
    return list({table.name: table for table in (select_table(loaded, name) for name in names)}.values())


def selected_of_all_kinds(names: Sequence[str], defs: Path | None) -> list[TableOfAnyKind]:
    """The tables of any kind with these names; without names, all. Raises like ``selected_streams``."""
    from kdi_assets.documents.loading.loader import load_folder

    return of_all_kinds(load_folder(defs), names)


def of_all_kinds(loaded: LoadedFolder, names: Sequence[str]) -> list[TableOfAnyKind]:
    """The same, of documents that are read already; a served table has a name that no other table has."""
    from kdi_assets.documents.loading.errors import Mistakes, UnknownStream
    from kdi_assets.documents.loading.loader import select_table
    from kdi_assets.documents.loading.served_documents import select_served
    from kdi_assets.documents.loading.yaml_documents import sorted_mistakes

    if not names:
        return [tables[name] for tables in (loaded.streams, loaded.refined, loaded.served) for name in sorted(tables)]
    found: dict[str, TableOfAnyKind] = {}
    for name in names:
        try:
            table = select_table(loaded, name)
            found[table.name] = table
        except UnknownStream as unknown:
            try:
                found |= {served.name: served for served in select_served(loaded.served, [name])}
            except UnknownStream:
                if loaded.mistakes:  # its document may be one of those
                    raise Mistakes(mistakes=sorted_mistakes(loaded.mistakes)) from None
                known = tuple(sorted([*unknown.known, *loaded.served]))
                raise UnknownStream(name=name, known=known, what="table") from None
    return list(found.values())


def parse_topic_partition(text: str | None, stream: Stream) -> TopicPartition | None:
    """Read ``web_requests/3``, or ``3`` for the stream's own topic."""
    if text is None:
        return None
    topic, _, number = text.rpartition("/")
    mistake = ""
    if not number.isdecimal():
        mistake = f"{text!r} is not a topic partition; write {stream.topic}/0"
    elif topic not in ("", stream.topic):
        mistake = f"{stream.name} drains topic {stream.topic}, not {topic}"
    if mistake:
        raise typer.BadParameter(mistake, param_hint="--topic-partition")
    return TopicPartition(stream.topic, int(number))


def refuse_reversed_dates(first: datetime | None, last: datetime | None) -> None:
    """Refuse a ``--from`` that is later than ``--to``; both are inclusive."""
    if first and last and first > last:
        raise typer.BadParameter(f"{first.date()} is later than --to {last.date()}", param_hint="--from")


def parse_timestamp(text: str, option: str) -> datetime:
    """Read ``2026-01-31T06:00:00Z``; a date alone is its midnight in UTC."""
    try:
        if len(text) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        example = "a date, or a timestamp such as 2026-01-31T06:00:00Z"
        raise typer.BadParameter(f"{text!r} is not a timestamp; write {example}", param_hint=option) from None
    if timestamp.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; write {text}Z, or another offset", param_hint=option)
    return timestamp
