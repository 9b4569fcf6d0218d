"""Which refined tables share an op in Dagster, and the dates of each: no events, no runs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

import dagster as dg

from kdi_assets.components.names import daily_partitions, first_date, identifier, path_key, table_key
from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.documents.loading.refined_documents import upstream_first
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import DateWindow, Stream

Window = tuple[date, int]
"""The first date, and the days after today that the last date lies ahead."""


@dataclass(frozen=True, slots=True)
class RefinedGroup:
    """Refined tables that one op brings up to date: they are made of each other, and have the same dates.

    One op, because Dagster skips the steps after a step that has no result, and a refinement has none: it logs the
    events of the dates that it touched, perhaps of none.

    Attributes:
        tables: Each after those that it is made of.
        window: ``None``: the tables have no date partitions.
        dated: The paths of all tables with date partitions, streams' tables too.
    """

    tables: tuple[RefinedTableSpec, ...]
    window: Window | None
    dated: frozenset[str]

    @property
    def name(self) -> str:
        """The op, and so the step."""
        return identifier(*table_key(min(self.tables, key=lambda table: table.name)).path)

    @property
    def pool(self) -> str:
        """The instance runs one step of a pool at a time, so two runs never refine the same table at once."""
        return f"refine_{self.name}"

    @property
    def partitions(self) -> dg.DailyPartitionsDefinition | None:
        """Dagster's partitions of the group's assets."""
        return daily_partitions(*self.window) if self.window else None

    def has_begun(self, day: date) -> bool:
        """Whether a run can be requested under this day, which is today."""
        return self.window is None or self.window[0] <= day

    def deps(self, table: RefinedTableSpec) -> list[dg.AssetDep]:
        """What the asset depends on: a date on the same date of each table with date partitions."""
        return [self._dep(upstream.table) for upstream in table.upstreams]

    def _dep(self, path: str) -> dg.AssetDep:
        if self.window and path in self.dated:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dg.BetaWarning)
                # The dates of two upstream tables may begin on different days.
                mapping = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
            return dg.AssetDep(path_key(path), partition_mapping=mapping)
        return dg.AssetDep(path_key(path))


@lru_cache(maxsize=4)
def groups_by_document(loaded: LoadedFolder) -> Mapping[str, RefinedGroup]:
    """The groups of a folder's refined tables, each by the name of the document that defines its assets: the first one.

    Once for all documents of a folder, because Dagster loads them one by one.
    """
    groups = refined_groups(loaded.refined.values(), loaded.streams.values())
    return {min(table.name for table in group.tables): group for group in groups}


def refined_groups(tables: Collection[RefinedTableSpec], streams: Collection[Stream]) -> list[RefinedGroup]:
    """The tables in groups, by the name of the first table of each.

    Args:
        streams: Their tables may be upstream; a refined table begins no earlier, and reaches as far ahead.
    """
    ordered = upstream_first(tables)
    windows = _windows(ordered, streams)
    groups = [group for group in _connected(ordered, windows) if group]
    dated = frozenset([s.table for s in streams] + [name for name, window in windows.items() if window])
    found = [RefinedGroup(tuple(group), windows[group[0].name], dated) for group in groups]
    return sorted(found, key=lambda group: group.name)


def _windows(ordered: Collection[RefinedTableSpec], streams: Collection[Stream]) -> Mapping[str, Window | None]:
    known: dict[str, Window | None] = {s.table: (first_date(s), s.date_window.ahead_days) for s in streams}
    for table in ordered:
        upstream = [window for u in table.upstreams if (window := known.get(u.table))]
        first = min((start for start, _ in upstream), default=table.start)
        ahead = max((days for _, days in upstream), default=DateWindow().ahead_days)
        known[table.name] = (max(table.start, first), ahead) if table.by_date else None
    return {table.name: known[table.name] for table in ordered}


def _connected(
    ordered: Collection[RefinedTableSpec], windows: Mapping[str, Window | None]
) -> list[list[RefinedTableSpec]]:
    """The tables of one window that are made of each other, directly or through others of the window."""
    groups: list[list[RefinedTableSpec]] = []
    for table in ordered:
        upstream = {u.table for u in table.upstreams}
        joined = [
            group
            for group in groups
            if windows[group[0].name] == windows[table.name] and any(other.name in upstream for other in group)
        ]
        groups = [group for group in groups if group not in joined]
        members = {other.name: other for group in joined for other in group}
        groups.append([*(t for t in ordered if t.name in members), table])
    return groups
