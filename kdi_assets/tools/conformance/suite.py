"""Runs scenarios with adapters, one after the other, and gives a result for each."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from random import Random

from kdi_assets.tools.conformance.adapter import Adapter, filled
from kdi_assets.tools.conformance.messages import fate_of
from kdi_assets.tools.conformance.play import Player
from kdi_assets.tools.conformance.scenario import Scenario
from kdi_assets.tools.conformance.topic import Topic
from kdi_assets.tools.conformance.verdict import WriterVerdict, judge
from kdi_assets.tools.conformance.writer import RunningService, Writer


@dataclass(frozen=True)
class ScenarioResult:
    """A cell of the table.

    Attributes:
        versions: Of the writer's parts.
        suite: A hash of the suite's sources: results of different suites are not put into one table.
    """

    adapter: str
    adapter_title: str
    scenario: str
    scenario_title: str
    verdict: WriterVerdict
    seed: int
    seconds: float
    versions: str
    suite: str


@dataclass(frozen=True)
class Suite:
    """What all scenarios of a run share.

    Attributes:
        work: A folder that the run has for itself; a folder in it for each scenario and adapter.
        home: Where the jars of the broker and of Spark are (``KDI_HOME``).
        report: Called with lines about the progress.
    """

    kafka: str
    work: Path
    home: Path
    seed: int
    report: Callable[[str], None]

    def run(self, adapters: Sequence[Adapter], scenarios: Sequence[Scenario]) -> Iterator[ScenarioResult]:
        """Play every scenario with every adapter."""
        sources()
        for adapter in adapters:
            with self._service(adapter) as service:
                for scenario in scenarios:
                    yield self._play(adapter, scenario, service)

    def _play(self, adapter: Adapter, scenario: Scenario, service: RunningService | None) -> ScenarioResult:
        began, today = time.monotonic(), datetime.now(UTC).date()
        # Random, because a Kafka that was there before may still have the topics of a run that was killed.
        name = f"conformance-{scenario.name}-{adapter.name}-{os.urandom(3).hex()}"
        folder = self.work / adapter.name / scenario.name
        folder.mkdir(parents=True)
        words = {**self._words(adapter), "topic": name, "table": folder / "table", "work": folder}
        topic = Topic(
            self.kafka,
            name,
            partitions=scenario.partitions,
            compacted=scenario.compacted,
            fate_of=partial(fate_of, today=today),
        )
        try:
            writer = Writer(adapter, folder=folder, words=words, service=service)
            writer.create_tables()
            random = Random(f"{self.seed} {scenario.name}")  # noqa: S311  # moments of kills are no secrets
            say = partial(self._say, f"{adapter.name}, {scenario.name}")
            verdict = judge(scenario, Player(scenario, topic=topic, writer=writer, random=random, report=say).play())
        finally:
            topic.delete()
        seconds = round(time.monotonic() - began, 1)
        self._say(f"{adapter.name}, {scenario.name}", f"{', '.join(verdict.words)} ({seconds:.0f} s)")
        title, versions = adapter.title, self._versions(adapter)
        return ScenarioResult(
            adapter.name,
            title,
            scenario.name,
            scenario.title,
            verdict,
            self.seed,
            round(seconds, 1),
            versions,
            sources(),
        )

    def _say(self, where: str, what: str) -> None:
        self.report(f"{where}: {what}")

    def _words(self, adapter: Adapter) -> Mapping[str, object]:
        home = self.work / adapter.name / "home"
        return {
            "kafka": self.kafka,
            "home": home,
            "adapter": Path(__file__).parent,
            "writer": 1,
            "pid": "",
            "output": "",
        }

    @contextmanager
    def _service(self, adapter: Adapter) -> Iterator[RunningService | None]:
        home = self.work / adapter.name / "home"
        home.mkdir(parents=True)
        (home / "jars").symlink_to(self.home / "jars")
        words = {**self._words(adapter), "topic": "", "table": "", "work": self.work / adapter.name}
        needed = adapter.service
        service = RunningService(adapter, needed, words=words, log=home / "service.log") if needed else None
        try:
            yield service
        finally:
            if service:
                service.stop()

    def _versions(self, adapter: Adapter) -> str:
        if adapter.versions is None:
            return ""
        command = filled(adapter.versions, {**self._words(adapter), "topic": "", "table": "", "work": self.work})
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


JUDGING = ("messages.py", "oracle.py", "verdict.py", "writers/*.py", "adapters/*", "scenarios/*")
"""The files that decide about a result."""


@cache  # as they were when the run began
def sources() -> str:
    """A hash of the files that decide about a result."""
    seen, here = hashlib.sha256(), Path(__file__).parent
    for file in sorted(path for pattern in JUDGING for path in here.glob(pattern)):
        seen.update(file.relative_to(here).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return seen.hexdigest()[:12]
