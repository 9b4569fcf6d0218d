"""One read for several streams of a route group: each has its own plan, ledger and commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Unpack

from kdi_assets.drain.cached_messages import cached_messages
from kdi_assets.drain.drain import Draining, DrainOptions
from kdi_assets.drain.execute_plan import ReadMessages
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.report import Commit, Commits, DrainReport
from kdi_assets.sources.kafka.topic import TopicState, read_topic
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Drained:
    """What a pass did for one stream.

    Attributes:
        commits: Those that landed, whatever came of it.
        report: What it did; ``None`` if it went no further.
        failure: Why not: what ``drain`` would have raised.
    """

    commits: list[Commit] = field(default_factory=list)
    report: DrainReport | None = None
    failure: Exception | None = None

    @property
    def did(self) -> Commits:
        """The commits, added up."""
        return Commits(commits=tuple(self.commits))

    def result(self) -> DrainReport:
        """What ``drain`` would have answered, or raised."""
        if self.report is None:
            raise self.failure or RuntimeError("it was not drained")
        return self.report

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """What goes wrong with one stream keeps no other from its way."""
        try:
            yield
        except Exception as failure:  # noqa: BLE001 - whoever asked for the stream raises it, when the others are done
            self.failure = failure


def drain_together(
    group: Sequence[Stream],
    *,
    on_commit: Callable[[Stream, Commit], None] = lambda stream, commit: None,
    at: Callable[[Stream, str], None] = lambda stream, point: None,
    **options: Unpack[DrainOptions],
) -> dict[str, Drained]:
    """Drain everything that waits now into the tables of several streams of one route group.

    What one of them refuses, or fails at, neither stops the others nor undoes what they did; the next drain brings it
    up, in a pass or by itself. The first stream of a pass reads for the others: its seconds are theirs too.

    Args:
        group: Streams of the same ``route_group``.
        on_commit: Called after each commit.
        at: As that of ``drain``.
    """
    drained = {stream.name: Drained() for stream in group}
    members: dict[str, Draining] = {}
    topic: TopicState | None = None

    def committed(stream: Stream, commit: Commit) -> None:
        drained[stream.name].commits.append(commit)
        on_commit(stream, commit)

    for stream in group:
        with drained[stream.name].by_itself():
            # One look for all: looked at one after the other, the last of them would plan what came meanwhile.
            topic = topic or (read_topic(stream.cluster, stream.topic) if stream.status != "retired" else None)
            members[stream.name] = Draining(
                stream,
                on_commit=partial(committed, stream),
                at=partial(at, stream),
                topic=topic,
                **options,
            )
    while plans := _plans(members, drained):
        with _read_once(options["session"], [members[name].stream for name in plans], list(plans.values())) as read:
            for name, plan in plans.items():
                with drained[name].by_itself():
                    members[name].do(plan, read=read)
    for name, member in members.items():
        if drained[name].failure is None:
            drained[name].report = member.done()
    return drained


def _plans(members: Mapping[str, Draining], drained: Mapping[str, Drained]) -> dict[str, Plan]:
    """The next plans of those that go on; what must be committed before one can be made, is."""
    plans = {}
    for name, member in members.items():
        if drained[name].failure is not None:
            continue
        with drained[name].by_itself():
            while (step := member.next_step()) is not None and not isinstance(step, Plan):
                member.do(step)
            if step is not None:
                plans[name] = step
    return plans


@contextmanager
def _read_once(
    session: Callable[[], SparkSession], streams: Sequence[Stream], plans: Sequence[Plan]
) -> Iterator[ReadMessages | None]:
    """What the plans read, kept for all of them; nothing where each has to read for itself."""
    with ExitStack() as until_done:
        read = None
        if len(plans) > 1:
            with suppress(Exception):  # each will meet it by itself, and say it of itself
                read = until_done.enter_context(cached_messages(session(), streams[0].cluster, plans))
        yield read


def in_passes(streams: Iterable[Stream]) -> list[list[Stream]]:
    """The streams that are drained together, and the others each by itself, in the order of the first of them."""
    passes: dict[object, list[Stream]] = {}
    for stream in streams:
        passes.setdefault(stream.route_group or stream.name, []).append(stream)
    return list(passes.values())
