"""What a drain refuses to decide where the conditions of a route group were changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kdi_assets.errors import Terminal, Transient
from kdi_assets.stream import TopicPartition


@dataclass(eq=False, kw_only=True)
class RoutesChangedApart(Terminal):
    """Route conditions were changed while tables of the group stand at different offsets.

    Attributes:
        positions: Where the stream's own table stands.
        others: Tables in whose way, or at odds with which, it would be; and where each stands, by which conditions.
        former: The conditions before the change, of the streams that have other ones now; empty where only the table
            was set back.
        group: All streams whose tables must stand at the same offsets.
    """

    stream: str
    positions: Mapping[TopicPartition, int]
    others: Mapping[str, str]
    former: Mapping[str, str]
    group: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        others = "; ".join(f"{name} {where}" for name, where in sorted(self.others.items()))
        stands = f"this one stands at {in_words(self.positions)}, {others}"
        if self.former:
            happened = f"the conditions of its route group were changed while its tables stand apart: {stands}"
        else:
            happened = f"its table is not where the tables of its route group took over these conditions: {stands}"
        risk = "messages between these offsets may then be in two tables, or in none"
        accept = f"kdi resolve {self.stream} accept-routes --because '…'   ({risk})"
        was = "; ".join(f"{name}: {when}" for name, when in sorted(self.former.items()))
        drain = f"kdi drain {' '.join(self.group)}"
        back = f"put back what the documents said ({was}); {drain}   (until all stand at the same offsets); then change"
        return (
            f"{self.stream}: {happened}.",
            f"what lies before {in_words(self.positions)} is in this table, if it belongs there; nothing was read, and "
            "positions stay as they are.",
            f"{back} again. Or {accept}" if self.former else accept,
        )


@dataclass(eq=False, kw_only=True)
class RoutesNotAgreed(Transient):
    """Tables of the group have not yet gone over to the conditions that this one has, and can."""

    stream: str
    waits_for: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: the conditions of its route group were changed, and {', '.join(self.waits_for)} must go "
            "over to them as well before any message is judged by them.",
            "nothing was read; positions stay as they are.",
            f"kdi drain {' '.join((self.stream, *self.waits_for))}   (in one pass all go over, then all are drained)",
        )


def in_words(positions: Mapping[TopicPartition, int]) -> str:
    """The positions in words: the next offset of every topic partition."""
    return ", ".join(f"{tp} {at:,}" for tp, at in sorted(positions.items()))
