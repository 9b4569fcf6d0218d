"""A process that drains a stream or replays its dead letters, and says how far it is; it may be killed at any time."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Literal

from kdi_assets.drain.drain import drain
from kdi_assets.drain.report import DrainReport
from kdi_assets.errors import KdiError, Terminal
from kdi_assets.replay.chosen import ALL, Chosen
from kdi_assets.replay.replay_letters import replay_letters
from kdi_assets.replay.report import ReplayReport
from kdi_assets.runtime.session import close_session, driver_loss_named, open_session
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream
from tests.faults.doomed_drain import processes
from tests.faults.warm_driver import JVM_OPTIONS

Act = Literal["drain", "replay"]
Outcome = DrainReport | ReplayReport | KdiError
ATTACHED = "attached"


@dataclass
class Busy:
    """The process, seen from the test.

    Attributes:
        point: The last one that it has reached.
        outcome: What it said in the end.
    """

    act: Act
    stream: Stream
    settings: Settings
    chosen: Chosen = ALL
    point: str = field(default="", init=False)
    outcome: Outcome | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        context = processes()
        self._answer, theirs = context.Pipe(duplex=False)
        arguments = (self.act, self.stream, self.settings, self.chosen, theirs)
        self._process = context.Process(target=_work, args=arguments)
        self._process.start()
        theirs.close()

    def reaches(self, point: str) -> bool:
        """Wait until it is there; false if it ended without."""
        until = time.monotonic() + 180
        while self.point != point and self.outcome is None:
            assert time.monotonic() < until, f"{self.act} stays behind {self.point!r}"
            self._hear(1)
        return self.outcome is None

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself before the time is over."""
        until = time.monotonic() + seconds
        while self.outcome is None and (left := until - time.monotonic()) > 0:
            self._hear(left)
        return self.outcome is not None

    def kill(self) -> None:
        """End it at once: no handler runs, nothing is flushed."""
        self._process.kill()
        self._process.join()
        with suppress(EOFError):  # how far it came is known only now
            while self._answer.poll():
                self._take()

    def await_end(self) -> Outcome:
        """What it says in the end: what was done, or that others came first again and again."""
        assert self.ends_within(180), f"{self.act} goes on behind {self.point!r}"
        assert self.outcome is not None and not isinstance(self.outcome, Terminal), self.outcome
        self._process.join(60)
        return self.outcome

    def end(self) -> None:
        """Leave nothing running."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._answer.close()
        self._process.close()

    def _hear(self, seconds: float) -> None:
        if self._answer.poll(seconds):
            try:
                self._take()
            except EOFError:
                raise AssertionError(f"{self.act} ended behind {self.point!r} and said nothing") from None

    def _take(self) -> None:
        said = self._answer.recv()
        if isinstance(said, str):
            self.point = said
            return
        self.outcome = said


def _work(act: Act, stream: Stream, settings: Settings, chosen: Chosen, answer: Connection) -> None:
    """In the process: do it, and tell of every point."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(JVM_OPTIONS)
    session = open_session(settings, app_name=act)
    answer.send(ATTACHED)
    lake = settings.lake
    try:
        with driver_loss_named(session):
            if act == "drain":
                answer.send(drain(stream, lake=lake, session=lambda: session, at=answer.send))
            else:
                answer.send(replay_letters(stream, lake=lake, session=lambda: session, chosen=chosen, at=answer.send))
    except KdiError as refusal:
        answer.send(refusal)
    with suppress(Exception):  # the driver may have gone
        close_session(session)
