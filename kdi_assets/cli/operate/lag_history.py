"""The lag of the last hour by stream, as a watch has seen it: a line of bars."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from kdi_assets.cli.output import short_duration
from kdi_assets.operate.monitoring.stream_row import StreamRow

HOUR, CELLS = timedelta(hours=1), 20
BARS = "▁▂▃▄▅▆▇█"
"""The first is no lag, the last the greatest lag of the hour."""


class LagHistory:
    """What a watch has seen; each bar stands for three minutes, and for the greatest lag in them."""

    def __init__(self) -> None:
        self._cells: defaultdict[str, dict[int, float]] = defaultdict(dict)

    def add(self, rows: Iterable[StreamRow], now: datetime) -> None:
        """Add a look; a lag that is unknown leaves its bar out."""
        cell = _cell(now)
        for row in rows:
            lag = _lag(row)
            if lag is not None:
                seen = self._cells[row.name]
                seen[cell] = max(lag, seen.get(cell, 0.0))
                self._cells[row.name] = {at: of for at, of in seen.items() if at > cell - CELLS}

    def line(self, stream: str, now: datetime) -> str:
        """Bars from the first look of the hour to now, and the greatest lag; a space where the lag was unknown."""
        newest = _cell(now)
        seen = [self._cells[stream].get(at) for at in range(newest - CELLS + 1, newest + 1)]
        greatest = max((lag for lag in seen if lag is not None), default=0.0)
        bars = "".join(" " if lag is None else _bar(lag, greatest) for lag in seen).lstrip()
        return f"{bars} max {short_duration(greatest)}" if greatest else bars or "?"


def _bar(lag: float, greatest: float) -> str:
    highest = len(BARS) - 1
    # At most: of some numbers, the product with 7 divided by the number itself is more than 7.
    return BARS[min(highest, math.ceil(highest * lag / greatest))] if greatest else BARS[0]


def _cell(at: datetime) -> int:
    return int(at.timestamp() // (HOUR.total_seconds() / CELLS))


def _lag(row: StreamRow) -> float | None:
    if row.refusal or not row.backlog.known:
        return None
    return row.backlog.lag_seconds if row.backlog.offsets else 0.0
