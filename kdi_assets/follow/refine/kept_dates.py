"""Which dates a refined table still computes: those that its upstream tables, and itself, keep.

Rows of a date that an upstream table keeps no longer cannot be computed again. So they are frozen: they stay as they
were, whatever comes after. That is right only if a date of the table is made of that date upstream, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import date_of, kept_from
from kdi_assets.documents.model.refined_modes import Deduplicate
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.entry import FORMAT_OF_KEPT_DATES
from kdi_assets.follow.refine.errors import NotByDate
from kdi_assets.follow.refine.upstream_bookmarks import format_id, frozen_id
from kdi_assets.follow.upstream import OpenedUpstream, day_in, later


@dataclass(frozen=True, slots=True)
class KeptDates:
    """The dates that are computed.

    Attributes:
        first: The first one; ``None``: all are.
        first_read: The first date upstream that makes a difference for them.
        frozen_before: Rows of the table before this date are as they were; ``None``: no upstream table has such a date.
        has_frozen: Whether there are such rows.
        known: The dates from ``first`` on that the table or an upstream table has.
        to_record: Whether there are such rows, and no commit of the table says ``frozen_before`` yet. An upstream table
            that takes the place of another does not say it, so without that commit its rows would replace these.
    """

    first: date | None = None
    first_read: date | None = None
    frozen_before: date | None = None
    has_frozen: bool = False
    known: frozenset[date] = frozenset()
    to_record: bool = False

    def of(self, days: Iterable[date]) -> frozenset[date]:
        """Those of some dates that are computed."""
        return frozenset(day for day in days if self.first is None or day >= self.first)


def read_kept_dates(
    table: RefinedTableSpec, log: TableLog | None, upstreams: Mapping[str, OpenedUpstream]
) -> KeptDates:
    """The dates that the next refinement may compute.

    Args:
        log: Of the table, at its newest version.
        upstreams: By the table's path.

    Raises:
        NotByDate: A table upstream, or the table itself, does not keep all dates, and rows of all dates are needed.
    """
    by_table = {path: first for path, found in upstreams.items() if (first := kept_from(found.log))}
    # Tables without such dates, which are most, are not asked for them: each id is a look at all newest commits.
    said = log if log and log.transaction_version(format_id(table.name)) == FORMAT_OF_KEPT_DATES else None
    own, recorded = (kept_from(said), date_of(said, frozen_id(table.name))) if said else (None, None)
    why = table.needs_other_dates
    if why and (by_table or ((own or recorded) and not table.is_computed_by_date)):
        name, first = max(by_table.items(), key=lambda item: item[1], default=(table.name, own or recorded))
        raise NotByDate(table=table.name, why=why, keeps=name, first=first)
    before = timedelta(days=dates_of_a_row(table) - 1)
    upstream = max(by_table.values(), default=None)
    frozen = later(upstream + before if upstream else None, recorded)
    first = later(frozen, own)
    if first is None:
        return KeptDates()
    dates = dates_of(log) if log else frozenset()
    has_frozen = frozen is not None and any((own is None or day >= own) and day < frozen for day in dates)
    known = dates.union(*(dates_of(found.log) for found in upstreams.values())) if has_frozen else dates
    known = frozenset(day for day in known if day >= first)
    return KeptDates(first, first - before, frozen, has_frozen, known, to_record=has_frozen and frozen != recorded)


def dates_of_a_row(table: RefinedTableSpec) -> int:
    """Of how many dates upstream the rows of a date are made: of itself and the days before it."""
    return table.mode.window if isinstance(table.mode, Deduplicate) else 1


def dates_of(log: TableLog) -> frozenset[date]:
    """The dates that a table has files of; none if it has no date partitions."""
    if "date" not in log.partition_columns:
        return frozenset()
    found = map(day_in, log.data_files.column("partition.date").to_pylist())
    return frozenset(day for day in found if day)
