"""Two drains of one stream at once, forced to plan on the same version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import TYPE_CHECKING, Protocol

from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.errors import AnotherDrainActive
from kdi_assets.streams.drain.report import DrainReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Driven(Protocol):
    """What drains need: of Kafka or Kinesis."""

    lake: str

    @property
    def session(self) -> Callable[[], SparkSession]: ...


def drain_at_once(
    web: Driven, definitions: Sequence[Stream], *, refusals: tuple[type[KdiError], ...] = (AnotherDrainActive,)
) -> list[DrainReport | KdiError]:
    """Drain with each document, in separate sessions; neither reads before both have planned.

    Args:
        refusals: Errors that may come instead of a report.
    """
    both = Barrier(2, timeout=60)

    def at(point: str) -> None:
        if point == "before reading":
            try:
                both.wait()
            except BrokenBarrierError:
                return  # the loser's second plan: nobody waits for it

    def run(definition: Stream) -> DrainReport | KdiError:
        session = web.session().newSession()
        try:
            return drain(definition, lake=web.lake, session=lambda: session, at=at)
        except refusals as refused:
            return refused
        finally:
            both.abort()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, definitions))
