"""Two drains of one stream at once, forced to plan on the same version."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError

from kdi_assets.drain.errors import AnotherDrainActive
from kdi_assets.drain.report import DrainReport
from kdi_assets.errors import KdiError
from kdi_assets.stream.stream import Stream
from tests.driven import DrivenStream


def drain_at_once(
    web: DrivenStream, definitions: Sequence[Stream], *, refusals: tuple[type[KdiError], ...] = (AnotherDrainActive,)
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
            return replace(web, session=lambda: session).drain(definition, at=at)
        except refusals as refused:
            return refused
        finally:
            both.abort()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, definitions))
