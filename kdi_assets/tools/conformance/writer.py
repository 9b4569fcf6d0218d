"""Runs an adapter's commands: starts writers, waits for them, stops and kills them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kdi_assets.runtime.processes import Child
from kdi_assets.tools.conformance.adapter import Adapter, Service, filled
from kdi_assets.tools.conformance.errors import CommandFailed, FileMistakes, ServiceDied
from kdi_assets.tools.conformance.layout import Layout
from kdi_assets.tools.conformance.scenario import Moment
from kdi_assets.tools.conformance.yaml_file import validated

LOOK_SECONDS = 0.002
COMMAND_SECONDS = 120
NEW_FILES: Mapping[Moment, str] = {"file": "**/*.parquet", "commit": "**/_delta_log/*.json"}


@dataclass
class WriterStart:
    """A writer that was started.

    Attributes:
        by_us: Whether the suite stopped or killed it.
    """

    child: Child
    output: Path
    by_us: bool = False

    def ended(self) -> bool:
        """Whether its process has ended."""
        return self.child.exit_code() is not None

    def failed(self) -> bool:
        """Whether it ended with an error, and not because the suite stopped or killed it."""
        return bool(self.child.exit_code()) and not self.by_us

    def wait(self, seconds: float, condition: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it has ended or the condition holds; false if the time is over."""
        until = time.monotonic() + seconds
        while not (self.ended() or condition()):
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def kill(self) -> None:
        """Kill it and its children (SIGKILL)."""
        self.by_us = True
        self.child.kill()


class Writer:
    """The writer of one scenario: a topic, a table, and a folder of its own.

    Args:
        words: The words in braces of its commands.
        service: The adapter's service, if it has one.
    """

    def __init__(self, adapter: Adapter, *, folder: Path, words: Mapping[str, object], service: RunningService | None):
        self.adapter, self.folder, self.service = adapter, folder, service
        self._words = dict(words)
        self._numbers = count(1)
        self.environment = adapter.environment_with(self._words)

    def create_tables(self) -> None:
        """Create the tables that the adapter asks for."""
        from deltalake import DeltaTable, Field, Schema
        from deltalake.schema import PrimitiveType

        for new in self.adapter.create_tables:
            fields = [Field(name, PrimitiveType(kind)) for name, kind in new.columns.items()]
            DeltaTable.create(new.uri.format_map(self._words), Schema(fields), partition_by=[*new.partition_by])

    def start(self, writer: int = 1) -> WriterStart:
        """Start one; ``writer`` is its number among those that run at once."""
        if self.service:
            self.service.ensure()
        output = self.folder / f"start-{next(self._numbers)}.log"
        words = {**self._words, "writer": writer, "output": output}
        child = Child(filled(self.adapter.start, words), log=output, environment=self.environment)
        return WriterStart(child, output)

    @property
    def consumer_group(self) -> str:
        """The adapter's consumer group; empty without one."""
        return self.adapter.consumer_group.format_map(self._words)

    def stop(self, start: WriterStart) -> None:
        """Ask it to end, and wait; kill it if it does not end in time."""
        start.by_us = True
        words = {"pid": start.child.pid, "output": start.output}
        if not start.ended():
            self._command("stop", self.adapter.stop, words, may_fail=True)
            start.wait(self.adapter.stop_seconds)
        start.kill()

    def finish(self, start: WriterStart) -> None:
        """Wait for the end of one that ends by itself; kill it if it takes too long, which is an error of it."""
        if not start.wait(self.adapter.start_seconds):
            start.child.kill()
            with start.output.open("a") as log:
                log.write(f"\ndid not end within {self.adapter.start_seconds:.0f} s, and was killed\n")

    def error_of(self, start: WriterStart) -> str:
        """The error that it ended with, as the adapter finds it in its output."""
        text = start.output.read_text(errors="replace")
        found = re.findall(self.adapter.error, text, re.MULTILINE) or re.findall(r"([^\n]+)\s*\Z", text)
        return (found[-1] if found else f"exit code {start.child.exit_code()}, without a word").strip()[:300]

    def decide(self, start: WriterStart) -> str:
        """Decide what it refused; empty if there is nothing to decide."""
        if self.adapter.decide is None:
            return ""
        done = self._command("decide", self.adapter.decide, {"output": start.output}, may_fail=True)
        return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else ""

    def layout(self) -> Layout:
        """Where its rows are now.

        Raises:
            CommandFailed: The command fails, or does not print what it must.
        """
        import json

        done = self._command("table", self.adapter.table, {})
        try:
            return validated(json.loads(done.stdout), Layout, place=f"{self.adapter.name}: `table`")
        except (ValueError, FileMistakes) as wrong:
            raise CommandFailed(adapter=self.adapter.name, command="table", detail=str(wrong)) from wrong

    def new_files(self, moment: Moment) -> Callable[[], bool]:
        """Whether the scenario's folder has a file of this kind that it does not have now."""
        if moment == "started":
            return lambda: True
        known = set(self.folder.glob(NEW_FILES[moment]))
        return lambda: any(file not in known for file in self.folder.glob(NEW_FILES[moment]))

    def _command(
        self, name: str, command: Sequence[str], words: Mapping[str, object], *, may_fail: bool = False
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            filled(command, {**self._words, **words}),
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode and not may_fail:
            raise CommandFailed(adapter=self.adapter.name, command=name, detail=done.stderr.strip()[-500:])
        return done


class RunningService:
    """An adapter's service: runs beside all its scenarios, and is started again after it was killed."""

    def __init__(self, adapter: Adapter, service: Service, *, words: Mapping[str, object], log: Path) -> None:
        self._adapter, self._service, self._words, self._log = adapter, service, dict(words), log
        self._child: Child | None = None
        self._environment = adapter.environment_with(self._words)

    def ensure(self) -> None:
        """Start it if it does not run, and wait until it is ready.

        Raises:
            ServiceDied: It ends, or is not ready in time.
        """
        if self._child is not None and self._child.exit_code() is None:
            return
        self._child = Child(filled(self._service.run, self._words), log=self._log, environment=self._environment)
        if failed := self._child.await_answer(self._is_ready, seconds=self._service.seconds):
            raise self._died(failed)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        if self._child is not None:
            self._child.kill()

    def stop(self) -> None:
        """Stop it."""
        if self._child is not None:
            self._child.stop()

    def _is_ready(self) -> bool:
        asked = subprocess.run(
            filled(self._service.ready, self._words),
            env={**os.environ, **self._environment},
            capture_output=True,
            check=False,
        )
        return asked.returncode == 0

    def _died(self, ending: str) -> ServiceDied:
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-6:])
        return ServiceDied(adapter=self._adapter.name, ending=ending, log=self._log, tail=tail)
