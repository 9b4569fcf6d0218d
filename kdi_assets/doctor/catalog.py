"""The catalog: which tables are not registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdi_assets.delta.log import TableLog
from kdi_assets.doctor.finding import Finding, Trouble, fine, warning
from kdi_assets.errors import KdiError
from kdi_assets.listeners.catalog import CatalogSetting, catalog_table, same_place
from kdi_assets.stream.stream import Stream
from kdi_assets.wording import counted

MOST_NAMED = 10


def catalog(setting: str, streams: Sequence[Stream], *, lake: str) -> Iterator[Finding]:
    """Whether Glue has the tables that exist; a catalog of Spark is not asked, because that needs a session.

    Args:
        setting: ``KDI_CATALOG``.
    """
    parsed = CatalogSetting.parse(setting)
    if parsed.kind == "spark":
        yield fine("catalog", setting, "each drain registers its table in Spark's catalog; not asked here")
        return
    existing = [stream for stream in streams if _exists(stream.table_uri(lake))]
    try:
        missing = _not_in_glue(existing, lake, parsed.database)
    except Exception as refused:  # noqa: BLE001 - boto3 and its transports raise many; drains only warn of them
        silent = Trouble(
            kind="catalog unreachable",
            happened=f"AWS Glue does not answer, or refuses: {refused}",
            safe="drains work; they warn, and register their tables once Glue answers.",
            run="aws glue get-databases    (with the same credentials and region)",
        )
        yield warning("catalog", setting, silent)
        return
    if missing:
        yield warning("catalog", setting, _unregistered(missing, parsed), missing=[s.name for s in missing])
    else:
        yield fine("catalog", setting, f"{counted(len(existing), 'table')} registered", registered=len(existing))


def _unregistered(missing: Sequence[Stream], setting: CatalogSetting) -> Trouble:
    names = [f"{s.name} as {catalog_table(s, setting.database)}" for s in missing]
    more = [f"and {len(names) - MOST_NAMED:,} more"] if len(names) > MOST_NAMED else []
    databases = sorted({catalog_table(s, setting.database).database for s in missing})
    return Trouble(
        kind=f"{counted(len(missing), 'table')} not registered",
        happened=f"AWS Glue does not have {', '.join([*names[:MOST_NAMED], *more])}, or has it with another location.",
        safe="the tables are complete; only readers that go by the catalog do not find them.",
        run=f"nothing, if Glue has the databases ({', '.join(databases)}): the next drain with messages registers its "
        "table. A table with another location: remove it from Glue, or set KDI_CATALOG=glue:DATABASE",
    )


def _exists(uri: str) -> bool:
    try:
        return TableLog.open(uri) is not None
    except KdiError:
        return False  # another line says so


def _not_in_glue(streams: Sequence[Stream], lake: str, database: str) -> list[Stream]:
    from kdi_assets.listeners.glue import glue_client, registered_places

    client, tables = glue_client(), {stream.name: catalog_table(stream, database) for stream in streams}
    places = {name: registered_places(client, name) for name in {table.database for table in tables.values()}}

    def found(stream: Stream) -> bool:
        table = tables[stream.name]
        return same_place(places[table.database].get(table.name, ""), stream.table_uri(lake))

    return [stream for stream in streams if not found(stream)]
