"""The cost of a process and its children: CPU seconds and peak memory of client, JVM and Python workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a piece of work.

    Attributes:
        cpu_seconds: User and system time of the process and all its descendants.
        peak_rss_bytes: Sum over these processes of the peak memory of each.
    """

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


class Meter:
    """Measures this process and its descendants, from its creation on or from the start of the process."""

    def __init__(self, *, from_process_start: bool = False) -> None:
        self._process = psutil.Process()
        if from_process_start:
            self._begin = self._process.create_time()
            self._cpu_before = 0.0
            return
        for process in self._tree():
            _forget_peak(process)
        self._begin = time.time()
        self._cpu_before = self._cpu_of_tree()

    def read(self) -> Usage:
        """The cost so far."""
        wall = time.time() - self._begin
        return Usage(wall, self.cpu_seconds(), sum(map(_peak_rss, self._tree())))

    def cpu_seconds(self) -> float:
        """The CPU seconds so far."""
        return self._cpu_of_tree() - self._cpu_before

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_of_tree(self) -> float:
        # A parent's times include its ended children, not its living ones: nothing counts twice.
        return sum(sum(process.cpu_times()[:4]) for process in self._tree())


STAGES = {
    "before reading": "plan",
    "files written": "pass",
    "dead letters written": "letters",
    "accounted for": "account",
    "commit sent": "commit",
    "the end": "look again",
}
"""The stage of a drain that ends at each of its named points."""


class StageMeter:
    """CPU seconds of a drain by stage: pass ``at`` to the drain.

    Attributes:
        seconds: By ``STAGES``; repeated stages of a drain are added up.
    """

    def __init__(self, meter: Meter) -> None:
        self.seconds: dict[str, float] = {}
        self._meter, self._before = meter, 0.0

    def at(self, point: str) -> None:
        """A stage has ended."""
        stage, now = STAGES.get(point, point), self._meter.cpu_seconds()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._before
        self._before = now


def _peak_rss(process: psutil.Process) -> int:
    """Bytes; without /proc, the current memory."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return int(process.memory_info().rss)
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(peak.split()[1]) * 1024


def _forget_peak(process: psutil.Process) -> None:
    """Reset the peak to the current memory of the process (Linux, proc(5), "clear_refs")."""
    try:
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    except OSError:
        return  # not Linux, or not permitted: the peak is that of the process's whole life
