"""Routes as a ledger records them: by which conditions of its route group a table is drained, and from where on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kdi_assets.stream.stream import Stream, TopicPartition

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Routes:
    """The conditions of a route group, as a table of it is drained by them.

    Attributes:
        conditions: Stream to its condition; empty: it has the rest alone. Without any the table takes all messages.
        rest: The stream that has the rest.
        app_ids: Stream to the prefix of its ledger's ids, by which its table is found also when its document is gone;
            not of retired streams, which are never drained again.
        since: Positions at which the table changed over to these conditions; ``None``: it began with them.
        stopped: Whether nothing is drained until ``accept-routes`` has decided, whatever the documents say.
    """

    conditions: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    app_ids: Mapping[str, str] = field(default_factory=dict)
    since: Positions | None = None
    stopped: bool = False

    @classmethod
    def of(cls, stream: Stream) -> Routes:
        """What the stream's document says, and those of its group."""
        group = stream.route.group if stream.route else {}
        return cls(
            conditions={name: group[name].when for name in sorted(group)},
            rest=next((name for name, member in group.items() if member.rest), ""),
            app_ids={name: group[name].app_id for name in sorted(group) if not group[name].retired},
        )

    def same_as(self, other: Routes) -> bool:
        """Whether both route every message alike."""
        return (self.rest, _stripped(self.conditions)) == (other.rest, _stripped(other.conditions))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], topic: str) -> Routes:
        """As an entry in the log has it."""
        since = plain["since"]
        positions = None if since is None else {TopicPartition(topic, int(p)): at for p, at in since.items()}
        return cls(**{**plain, "since": positions})


def same_positions(one: Positions | None, other: Positions | None) -> bool:
    """Whether both are the same offsets; a topic partition that is not in them begins at 0."""
    if one is None or other is None:
        return one is other
    return {tp: at for tp, at in one.items() if at} == {tp: at for tp, at in other.items() if at}


def _stripped(conditions: Mapping[str, str]) -> dict[str, str]:
    return {name: when.strip() for name, when in conditions.items()}
