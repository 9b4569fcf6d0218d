"""Names in Dagster: asset keys, date partitions, ops, pools and groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256

import dagster as dg

from kdi_assets.documents.model.connections.connections import SourceConnection
from kdi_assets.documents.model.limits import DateWindow
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import CheckName, Stream
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.streams.ledger.dates import oldest_date

DAYS_BEFORE_FIRST_DRAIN = 7
"""With `start: auto`, partitions before there is a table: Kafka keeps messages for seven days by default."""


def path_key(path: str) -> dg.AssetKey:
    """The asset of a table with this path below the lake's root."""
    return dg.AssetKey(path.split("/"))


def table_key(table: Stream | RefinedTableSpec) -> dg.AssetKey:
    """The asset of a stream's table, or of a refined table: its path below the lake's root."""
    return path_key(table.table)


def letters_key(stream: Stream) -> dg.AssetKey:
    """The asset of the stream's dead letters: their path, which is the table's with ``_dead_letters``."""
    *folders, table = table_key(stream).path
    return dg.AssetKey([*folders, f"{table}_dead_letters"])


def topic_key(cluster: SourceConnection, topic: str) -> dg.AssetKey:
    """The asset of a topic, which all streams of the topic share."""
    return dg.AssetKey([cluster.system, cluster.name, topic])


LETTERS_GROUP = "dead_letters"
"""One group for the dead letters of all streams: to materialize a group of tables must not replay dead letters."""


def check_key(stream: Stream, check: CheckName) -> dg.AssetCheckKey:
    """One of the checks of the stream's table."""
    return dg.AssetCheckKey(table_key(stream), check)


def dates(stream: Stream) -> dg.DailyPartitionsDefinition:
    """The date partitions of the stream's table and of its dead letters, in UTC: the stream's date window."""
    return daily_partitions(first_date(stream), stream.date_window.ahead_days)


def first_date(stream: Stream) -> date:
    """The first date partition: the start of the stream's date window, or with `auto` the oldest date of the table."""
    uri = auto_start_uri(stream)
    return max(stream.date_window.first, table_start(uri)) if uri else stream.date_window.first


def auto_start_uri(stream: Stream) -> str | None:
    """The table with whose oldest date the partitions start; ``None``: they start with the document's date."""
    return stream.table_uri(Settings.from_environment().lake) if stream.date_window.start == "auto" else None


_starts: dict[str, date] = {}
_asks_storage = True


def table_start(uri: str) -> date:
    """The oldest date of a table. Read once a load of the code location: that is when Dagster takes partitions."""
    start = _starts.get(uri)
    if start is None:  # not looked up twice: a reload in another thread may forget it in between
        if not _asks_storage:
            raise LookupError(f"{uri}: its oldest date is not known")
        start = _starts[uri] = _read_start(uri)
    return start


def forget_starts() -> None:
    """Let ``table_start`` read again."""
    _starts.clear()


@contextmanager
def only_known_starts(starts: Mapping[str, date]) -> Iterator[None]:
    """Let ``table_start`` know these and ask no storage; it raises ``LookupError`` for others."""
    global _asks_storage
    _asks_storage = False
    _starts.update(starts)
    try:
        yield
    finally:
        _asks_storage = True
        forget_starts()


def _read_start(uri: str) -> date:
    today = datetime.now(UTC).date()  # always a partition, or no run could be requested: rows may be dated ahead
    try:
        return min(oldest_date(uri) or today - timedelta(days=DAYS_BEFORE_FIRST_DRAIN), today)
    except (OSError, KdiError):  # no answer, or no credentials, as where documents are only checked
        return DateWindow().first  # too many partitions hide nothing


def shown_dates(days: Collection[date], partitions: dg.DailyPartitionsDefinition, *, first: date) -> list[date]:
    """The dates whose events are logged, in order: those of Dagster's partitions, and older ones from ``first`` on.

    Dagster shows the events of older dates after it has loaded the code location again, if the partitions begin
    with the table's oldest date; otherwise ``first`` is the first partition.
    """
    begins = partitions.start.date()
    return [day for day in sorted(days) if first <= day < begins or partitions.has_partition_key(day.isoformat())]


def daily_partitions(start: date, ahead_days: int) -> dg.DailyPartitionsDefinition:
    """Dates in UTC from ``start`` to so many days after today, both inclusive."""
    return dg.DailyPartitionsDefinition(
        start_date=start.isoformat(),
        end_offset=1 + ahead_days,  # 0 ends with yesterday
        timezone="UTC",
    )


def identifier(*parts: str) -> str:
    """A unique name of letters, digits and ``_`` for the parts.

    A digest follows if characters were replaced, so that ``a.b`` and ``a_b`` differ: Dagster refuses two equal names.
    """
    name = "__".join(re.sub(r"[^A-Za-z0-9]", "_", part) for part in parts)
    if all(re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*", part) for part in parts):
        return name
    return f"{name}_{sha256('/'.join(parts).encode()).hexdigest()[:8]}"


def op_name(stream: Stream) -> str:
    """The op, and so the step, of the stream's table."""
    return identifier(*stream.table.split("/"))


def letters_op_name(stream: Stream) -> str:
    """The op of the stream's dead letters."""
    return identifier(*letters_key(stream).path)


def pool(stream: Stream) -> str:
    """The stream's pool; the instance runs one step of a pool at a time, so two runs never commit at once."""
    return f"stream_{op_name(stream)}"


def group(table: Stream | RefinedTableSpec) -> str | None:
    """The first folder of the table's path; ``None`` (Dagster's default group) for a table directly below the root."""
    folder, separator, _ = table.table.partition("/")
    return identifier(folder) if separator else None
