"""The catalog: which tables are not registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdi_assets.delta.log import TableLog
from kdi_assets.errors import KdiError
from kdi_assets.follow.listeners.catalog import CatalogSetting, catalog_table, same_place
from kdi_assets.follow.listeners.heard import HeardTable
from kdi_assets.operate.doctor.finding import Finding, Trouble, fine, warning
from kdi_assets.wording import counted

MOST_NAMED = 10


def catalog(setting: str, tables: Sequence[HeardTable], *, lake: str) -> Iterator[Finding]:
    """Whether Glue has the tables that exist; a catalog of Spark is not asked, because that needs a session.

    Args:
        setting: ``KDI_CATALOG``.
    """
    parsed = CatalogSetting.parse(setting)
    if parsed.kind == "spark":
        yield fine("catalog", setting, "each run registers its table in Spark's catalog; not asked here")
        return
    existing = [table for table in tables if _exists(table.table_uri(lake))]
    try:
        missing = _not_in_glue(existing, lake, parsed.database)
    except Exception as refused:  # noqa: BLE001 - boto3 and its transports raise many; runs only warn of them
        silent = Trouble(
            kind="catalog unreachable",
            happened=f"AWS Glue does not answer, or refuses: {refused}",
            safe="runs work; they warn, and register their tables once Glue answers.",
            run="aws glue get-databases    (with the same credentials and region)",
        )
        yield warning("catalog", setting, silent)
        return
    if missing:
        yield warning("catalog", setting, _unregistered(missing, parsed), missing=[s.name for s in missing])
    else:
        yield fine("catalog", setting, f"{counted(len(existing), 'table')} registered", registered=len(existing))


def _unregistered(missing: Sequence[HeardTable], setting: CatalogSetting) -> Trouble:
    names = [f"{s.name} as {catalog_table(s, setting.database)}" for s in missing]
    more = [f"and {len(names) - MOST_NAMED:,} more"] if len(names) > MOST_NAMED else []
    databases = sorted({catalog_table(s, setting.database).database for s in missing})
    return Trouble(
        kind=f"{counted(len(missing), 'table')} not registered",
        happened=f"AWS Glue does not have {', '.join([*names[:MOST_NAMED], *more])}, or has it with another location.",
        safe="the tables are complete; only readers that go by the catalog do not find them.",
        run="kdi doctor    (after the next run with a commit: it registers its table if Glue has the databases "
        f"{', '.join(databases)}. Remove a table with another location first, or set KDI_CATALOG=glue:DATABASE)",
    )


def _exists(uri: str) -> bool:
    try:
        return TableLog.open(uri) is not None
    except KdiError:
        return False  # another line says so


def _not_in_glue(existing: Sequence[HeardTable], lake: str, database: str) -> list[HeardTable]:
    from kdi_assets.follow.listeners.glue import glue_client, registered_places

    client, names = glue_client(), {table.name: catalog_table(table, database) for table in existing}
    places = {name: registered_places(client, name) for name in {named.database for named in names.values()}}

    def found(table: HeardTable) -> bool:
        named = names[table.name]
        return same_place(places[named.database].get(named.name, ""), table.table_uri(lake))

    return [table for table in existing if not found(table)]
