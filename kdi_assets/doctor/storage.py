"""What the lake's storage must be able to do, tried on a probe: put-if-absent, and a clock that is about right."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Barrier
from time import time

from kdi_assets.doctor.finding import Finding, fine, warning, wrong
from kdi_assets.doctor.local_storage import LocalStorage
from kdi_assets.doctor.object_storage import object_storage
from kdi_assets.doctor.places import local_path
from kdi_assets.doctor.probe import PutIfAbsentMissing, Storage
from kdi_assets.errors import KdiError, Terminal
from kdi_assets.runtime.threads import begin
from kdi_assets.wording import duration

LARGEST_SKEW_SECONDS = 60.0


class ClockSkewed(Terminal):
    """The storage's clock and ours differ."""

    lake: str
    skew_seconds: float

    def parts(self) -> tuple[str, str, str]:
        ahead = "ahead of" if self.skew_seconds > 0 else "behind"
        return (
            f"{self.lake}: the storage's clock is {duration(abs(self.skew_seconds))} {ahead} this machine's.",
            "positions do not depend on clocks; lag, the window of dates, retention of the log and requests that are "
            "signed do.",
            "timedatectl    (on this machine and on the storage's: is NTP on?)",
        )


class StorageUnknown(Terminal):
    """The lake lies where the doctor has no probe for."""

    lake: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.lake}: put-if-absent and the clock of this kind of storage are not examined.",
            "nothing was written there.",
            "read in the storage's documentation whether two can create one object at once",
        )


class ProbeLeft(Terminal):
    """The probe could be written and not removed."""

    lake: str
    name: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.lake}: the probe {self.name} could not be removed: {self.detail}",
            "no table is touched by it; upkeep will not be able to remove what is expired either.",
            f"remove {self.lake.rstrip('/')}/{self.name}, and give us the right to delete",
        )


def storage(
    lake: str, *, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time
) -> Iterator[Finding]:
    """Try the lake's storage with a probe, which is removed afterwards.

    Args:
        clock: Ours: seconds since 1970.

    Raises:
        StorageRefusesProbe: The storage lets us not write, or not read.
        StorageUnanswered: It does not answer.
    """
    path = local_path(lake)
    tried = LocalStorage(path) if path else object_storage(lake, environment)
    if tried is None:
        yield warning("storage", lake, StorageUnknown(lake=lake))
        return
    yield from examined(tried, lake, clock=clock)


def examined(tried: Storage, lake: str, *, clock: Callable[[], float] = time) -> Iterator[Finding]:
    """Both examinations of one storage, by one probe."""
    name = f"kdi-doctor-{uuid.uuid4().hex}"
    try:
        before, created, after = clock(), race(tried, name), clock()
        yield _put_if_absent(lake, created, held=tried.read(name))
        yield _clock(lake, before, after, written=tried.written_at(name))
    finally:
        removal = _removed(tried, lake, name)
    if removal:
        yield removal


def _put_if_absent(lake: str, created: Sequence[bytes], *, held: bytes) -> Finding:
    if list(created) != [held]:
        return wrong("storage", lake, PutIfAbsentMissing(lake=lake, created=len(created)))
    return fine("storage", lake, "put-if-absent: of two at once, one created the object")


def race(tried: Storage, name: str) -> list[bytes]:
    """Create one object twice at the same time; the contents of those who were told that they did."""
    both = Barrier(2)

    def create(content: bytes) -> bool:
        both.wait()
        return tried.create(name, content)

    begun = {content: begin(partial(create, content), name=f"create {name}") for content in (b"one", b"other")}
    return [content for content, created in begun.items() if created.result()]


def _clock(lake: str, before: float, after: float, *, written: float) -> Finding:
    # The storage wrote between the two; within them, and within the second that it may round to, nothing is told.
    skew = written - after if written > after else min(0.0, written + 1 - before)
    if abs(skew) > LARGEST_SKEW_SECONDS:
        return warning("clock", lake, ClockSkewed(lake=lake, skew_seconds=skew), facts={"skew_seconds": skew})
    return fine("clock", lake, f"the storage's is {abs(skew):.1f} s from ours", skew_seconds=skew)


def _removed(tried: Storage, lake: str, name: str) -> Finding | None:
    try:
        tried.remove(name)
    except KdiError as refused:
        return warning("storage", lake, ProbeLeft(lake=lake, name=name, detail=refused.parts()[0]))
    return None
