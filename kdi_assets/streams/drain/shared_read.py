"""One read for the streams of a route group, each with its own plan, ledger and commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Unpack

from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.held import ReadMessages
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.runtime.spark_failures import interrupt_before
from kdi_assets.streams.drain.cached_messages import cached_messages
from kdi_assets.streams.drain.drain import Draining, DrainOptions
from kdi_assets.streams.drain.execute_plan import DrainContext
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.drain.report import Commit, Commits, DrainReport, heard_by_listeners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Drained:
    """What a pass did for one stream.

    Attributes:
        commits: The plans that were committed, also of a stream that failed.
        report: What ``drain`` would have returned; ``None`` if the stream failed.
        failure: What ``drain`` would have raised.
    """

    commits: list[Commit] = field(default_factory=list)
    report: DrainReport | None = None
    failure: Exception | None = None

    @property
    def did(self) -> Commits:
        """The commits, added up."""
        return Commits(commits=tuple(self.commits))

    def result(self) -> DrainReport:
        """Return or raise what ``drain`` would have."""
        if self.report is None:
            raise self.failure or RuntimeError("it was not drained")
        return self.report

    @contextmanager
    def keeping_failure(self) -> Iterator[None]:
        """Keep what the body raises: the failure of one stream does not stop the others."""
        try:
            yield
        except Exception as failure:  # noqa: BLE001 - `result` raises it when the other streams are done
            if (interrupt := interrupt_before(failure)) is not None:
                raise interrupt from None
            self.failure = failure


def drain_together(
    group: Sequence[Stream],
    *,
    on_commit: Callable[[Stream, Commit], None] = lambda stream, commit: None,
    at: Callable[[Stream, str], None] = lambda stream, point: None,
    **options: Unpack[DrainOptions],
) -> dict[str, Drained]:
    """Drain the backlog of several streams of one route group: one read, and a plan, ledger and commit for each stream.

    What one stream refuses, or fails at, neither stops the others nor undoes their commits; its next drain catches up,
    in a pass or alone. The first stream of a pass reads for all: its seconds contain their read.

    Args:
        group: Streams of the same ``route_group``.
        on_commit: Called after each commit.
        at: As in ``DrainContext``.
        options: As in ``DrainContext``.
    """
    drained = {stream.name: Drained() for stream in group}
    with _heard(group, drained, options) as heard:

        def committed(stream: Stream, commit: Commit) -> None:
            heard[stream.name](commit)
            on_commit(stream, commit)

        members = _members(group, drained, committed, at, options)
        while plans := _plans(members, drained):
            with _read_once(options["session"], [members[name] for name in plans], list(plans.values())) as read:
                for name, plan in plans.items():
                    with drained[name].keeping_failure():
                        members[name].take(plan, read=read)
        for name, member in members.items():
            if drained[name].failure is None:
                drained[name].report = member.report()
    return drained


@contextmanager
def _heard(
    group: Sequence[Stream], drained: Mapping[str, Drained], options: DrainOptions
) -> Iterator[dict[str, Callable[[Commit], None]]]:
    """``heard_by_listeners`` of each stream, by its name."""
    lake, session, run_id = options["lake"], options["session"], options.get("run_id", "")
    with ExitStack() as runs:
        yield {
            stream.name: runs.enter_context(
                heard_by_listeners(
                    "drain",
                    stream,
                    lake,
                    session,
                    run_id=run_id,
                    kept_failure=partial(getattr, drained[stream.name], "failure"),
                    report=options.get("report", lambda line: None),
                )
            )
            for stream in group
        }


def _members(
    group: Sequence[Stream],
    drained: Mapping[str, Drained],
    on_commit: Callable[[Stream, Commit], None],
    at: Callable[[Stream, str], None],
    options: DrainOptions,
) -> dict[str, Draining]:
    """The streams of the group that can be drained, by name."""
    members: dict[str, Draining] = {}
    topic: TopicState | None = None

    def committed(stream: Stream, commit: Commit) -> None:
        drained[stream.name].commits.append(commit)
        on_commit(stream, commit)

    for stream in group:
        with drained[stream.name].keeping_failure():
            # One look at the topic for all: with one look each, the later streams would plan newer messages, too.
            topic = topic or (source_of(stream).topic(stream.topic) if stream.status != "retired" else None)
            context = DrainContext(stream=stream, at=partial(at, stream), **options)
            members[stream.name] = Draining(context, on_commit=partial(committed, stream), topic=topic)
    return members


def _plans(members: Mapping[str, Draining], drained: Mapping[str, Drained]) -> dict[str, Plan]:
    """The next plans of the streams that did not fail, after the position commits that they need."""
    plans = {}
    for name, member in members.items():
        if drained[name].failure is not None:
            continue
        with drained[name].keeping_failure():
            while (step := member.next_step()) is not None and not isinstance(step, Plan):
                member.take(step)
            if step is not None:
                plans[name] = step
    return plans


@contextmanager
def _read_once(
    session: Callable[[], SparkSession], planned: Sequence[Draining], plans: Sequence[Plan]
) -> Iterator[ReadMessages | None]:
    """A cache of the plans' messages; ``None`` where each stream has to read for itself."""
    with ExitStack() as until_done:
        read = None
        if len(plans) > 1 and not any(member.holds_messages for member in planned):
            with Drained().keeping_failure():  # each stream fails in the same way on its own, and reports it
                read = until_done.enter_context(cached_messages(session(), source_of(planned[0].stream), plans))
        yield read


def by_shared_read(streams: Iterable[Stream]) -> list[list[Stream]]:
    """The streams of a route group together, each other stream alone; in the order of the first of each."""
    groups: dict[object, list[Stream]] = {}
    for stream in streams:
        groups.setdefault(stream.route_group or stream.name, []).append(stream)
    return list(groups.values())
