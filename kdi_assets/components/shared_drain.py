"""Tables of a route group that one run drains: the first of their steps reads for all, each tells what is its own.

Steps stay as they are, one for each table: what one refuses is shown, retried and checked at its own table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from kdi_assets.components.names import op_name, table_key
from kdi_assets.drain.report import Commit, DrainReport
from kdi_assets.drain.shared_read import Drained, drain_together
from kdi_assets.stream.stream import Stream


@dataclass(frozen=True, slots=True)
class OnePass:
    """A ``table_run.Drain`` for the tables of a group that a run selects.

    Attributes:
        group: The streams that the run drains.
        drained: By stream, what steps before this one of the run did; ``None`` once its own step has told it.
    """

    group: Sequence[Stream]
    drained: dict[str, Drained | None]

    def __call__(self, stream: Stream, *, on_commit: Callable[[Commit], None], **of_run: Any) -> DrainReport:
        def tell(of: Stream, commit: Commit) -> None:
            if of is stream:
                on_commit(commit)  # the others' steps tell of theirs

        if mine := self.drained.get(stream.name):
            self.drained[stream.name] = None
            for commit in mine.commits:
                on_commit(commit)
            return mine.result()
        # Also where the step is tried again: what it failed at the first time is no longer what it would meet.
        members = [stream, *(s for s in self.group if s.name not in {stream.name, *self.drained})]
        done = drain_together(members, on_commit=tell, **of_run)
        self.drained.update({**done, stream.name: None})
        return done[stream.name].result()


def drained_by(context: dg.AssetExecutionContext, group: Collection[Stream]) -> list[Stream]:
    """The streams of a group that the run drains: whose tables it selects, and whose steps it takes."""
    # The run's job is made of what it selects; a retry of what failed takes fewer steps of it.
    keys, steps = set(context.job_def.asset_layer.executable_asset_keys), context.run.step_keys_to_execute
    return [s for s in group if table_key(s) in keys and (steps is None or op_name(s) in steps)]
