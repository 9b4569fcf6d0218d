"""Refined tables in Dagster with an engine that only reports: for tests about Dagster's behaviour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster import DagsterInstance
from deltalake import CommitProperties, write_deltalake

from kdi_assets.components.names import table_key
from kdi_assets.components.refined_asset import refined_asset
from kdi_assets.components.refined_checks import refined_check_key
from kdi_assets.components.refined_groups import refined_groups
from kdi_assets.components.refined_run import RefineEngine
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.audit.audit import RefinedAudit
from kdi_assets.follow.refine.entry import RefineEntry, VersionRange, refine_entry_to_json
from kdi_assets.follow.refine.report import RefineReport
from kdi_assets.operate.monitoring.refined_status import RefinedStatus
from tests.dagster.fakes import Selected, a_stream, materialize, range_tags, today

BRONZE = a_stream()


def a_refined_table(table: str = "silver/sessions", *upstream: str, **fields: Any) -> RefinedTableSpec:
    """A refined table of the bronze table, or of others."""
    return RefinedTableSpec(table, tuple(Upstream(path) for path in upstream or (BRONZE.table,)), **fields)


SILVER = a_refined_table()
GOLD = a_refined_table("gold/daily", "silver/sessions")


@dataclass
class ScriptedRefine:
    """Reports what a refinement would have done.

    Attributes:
        rows: By table, the rows that it adds by date; a table that is missing has nothing new.
        endings: By table, how it is refused.
        asked: Tables and dates, in the order of the calls.
    """

    rows: Mapping[str, Mapping[date, int]] = field(default_factory=dict)
    endings: Mapping[str, KdiError] = field(default_factory=dict)
    unmet: Mapping[str, int] = field(default_factory=dict)
    version: int = 7
    status: RefinedStatus = field(default_factory=lambda: RefinedStatus(SILVER))
    audited: RefinedAudit = field(default_factory=lambda: RefinedAudit(SILVER.name, 7, (), None, 10, 0, 0))
    asked: list[tuple[str, tuple[date, date] | None]] = field(default_factory=list)

    def engine(self) -> RefineEngine:
        return RefineEngine(self, self.lineage, lambda *_: self.status, lambda *_, **__: self.audited)

    def __call__(
        self, table: RefinedTableSpec, *, dates: tuple[date, date] | None = None, **_unused: object
    ) -> RefineReport:
        self.asked.append((table.name, dates))
        if ending := self.endings.get(table.name):
            raise ending
        if table.name not in self.rows:
            return RefineReport(RefineEntry(table.name, "", "nothing"))
        return RefineReport(self.entry(table, "", self.version), seconds=1.5)

    def entry(self, table: RefinedTableSpec, lake: str, version: int) -> RefineEntry:
        return an_entry(table, self.rows[table.name], version=version, unmet=self.unmet)

    def lineage(self, table: RefinedTableSpec, lake: str, session: object) -> Mapping[str, Sequence[tuple[str, str]]]:
        return {"date": [(upstream.table, "date") for upstream in table.upstreams]}


def an_entry(table: RefinedTableSpec, rows: Mapping[date, int], *, version: int, **fields: Any) -> RefineEntry:
    return RefineEntry(
        consumer=table.name,
        attempt_id=f"{table.name.replace('/', '-')}-{version}",
        kind="changes",
        upstreams=tuple(VersionRange(upstream.table, "u", 3, 5) for upstream in table.upstreams),
        dates=tuple(sorted(rows)),
        rows_added=sum(rows.values()),
        rows_removed=1,
        rows_by_date=rows,
        removed_by_date=dict.fromkeys(sorted(rows)[:1], 1),
        version=version,
        **fields,
    )


def refined_assets(
    refine: ScriptedRefine, *tables: RefinedTableSpec, streams: Sequence[Stream] = (BRONZE,)
) -> list[dg.AssetsDefinition]:
    """The assets of the tables, with this engine."""
    return [refined_asset(group, engine=refine.engine()) for group in refined_groups(tables, streams)]


def run_refined(
    instance: DagsterInstance,
    refine: ScriptedRefine,
    *tables: RefinedTableSpec,
    day: date | None = None,
    until: date | None = None,
    checks: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    streams: Sequence[Stream] = (BRONZE,),
) -> dg.ExecuteInProcessResult:
    """Materialize the tables under today's date, another one, or a range; with the first one's checks."""
    assets, first = refined_assets(refine, *tables, streams=streams), day or today()
    selected: list[Selected] = [*map(table_key, tables), *(refined_check_key(tables[0], name) for name in checks)]
    if not tables[0].by_date:
        return materialize(instance, assets, *selected, tags=tags)
    if until:
        return materialize(instance, assets, *selected, tags={**(tags or {}), **range_tags(first, until)})
    return materialize(instance, assets, *selected, day=first, tags=tags)


def committed(lake: str, table: RefinedTableSpec, rows: dict[date, int], *, version: int) -> None:
    """A commit of ours that nobody logged."""
    entry = refine_entry_to_json(an_entry(table, rows, version=version))
    days = pa.array([day for day, count in rows.items() for _ in range(count)], pa.date32())
    write_deltalake(
        table.table_uri(lake),
        pa.table({"date": days}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": entry}),
    )
