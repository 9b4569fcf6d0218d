"""Routes as a ledger records them: the conditions of the route group, and the positions since which they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kdi_assets.documents.model.stream import Stream, TopicPartition

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Routes:
    """The conditions of a route group by which a table is drained.

    Attributes:
        conditions: The condition of each stream; empty for a stream with the rest only. Without any condition the table
            takes all messages.
        rest: The stream that takes the messages that match no condition.
        app_ids: The app id of each stream, to find its table even if its document is gone; without retired streams,
            which are never drained again.
        since: Positions since which the table is drained by these conditions; ``None`` if it always was.
        stopped: Whether nothing is drained until ``accept-routes`` has decided.
    """

    conditions: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    app_ids: Mapping[str, str] = field(default_factory=dict)
    since: Positions | None = None
    stopped: bool = False

    @classmethod
    def of(cls, stream: Stream) -> Routes:
        """The routes in the documents of the stream and its group."""
        group = stream.route.group if stream.route else {}
        return cls(
            conditions={name: group[name].when for name in sorted(group)},
            rest=next((name for name, member in group.items() if member.rest), ""),
            app_ids={name: group[name].app_id for name in sorted(group) if not group[name].retired},
        )

    def same_as(self, other: Routes) -> bool:
        """Whether both route every message to the same streams."""
        return (self.rest, _stripped(self.conditions)) == (other.rest, _stripped(other.conditions))

    @classmethod
    def from_json(cls, value: Mapping[str, Any], topic: str) -> Routes:
        """Read the JSON of a ledger entry."""
        since = value["since"]
        positions = None if since is None else {TopicPartition(topic, int(p)): at for p, at in since.items()}
        return cls(**{**value, "since": positions})


def same_positions(one: Positions | None, other: Positions | None) -> bool:
    """Whether both are the same offsets; an absent topic partition is at 0."""
    if one is None or other is None:
        return one is other
    return {tp: at for tp, at in one.items() if at} == {tp: at for tp, at in other.items() if at}


def _stripped(conditions: Mapping[str, str]) -> dict[str, str]:
    return {name: when.strip() for name, when in conditions.items()}
