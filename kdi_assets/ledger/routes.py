"""Routes as a ledger records them: by which conditions of its route group a table is drained, and from where on.

A table goes over to other conditions in two steps, each a ledger commit of its own. First it says so, at the positions
where it stands: from then on no drain that was planned by the former conditions can commit any more. Then, once every
other table of the group says the same of the same positions, it is drained by them, and the drain's entry has them as
agreed. So for every offset there is one set of conditions, whoever drains when, and by whichever documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kdi_assets.stream import Stream, TopicPartition

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Routes:
    """The conditions of a route group, and since when a table of it has them.

    Attributes:
        conditions: Stream to its condition; empty: it has the rest alone. Without any the table takes all messages.
        rest: The stream that has the rest.
        app_ids: Stream to the prefix of its ledger's ids, by which it is found also when the document is gone; not of
            those that are never drained again.
        since: Positions at which the table went over to them; ``None``: whatever it holds was judged by them.
        began: Whether the table never had others, nor was about to.
        agreed: Whether it was drained by them, or somebody vouches for them; else the others must be asked first.
        former: Of conditions that it is about to go over to: those that it was drained by.
    """

    conditions: Mapping[str, str]
    rest: str = ""
    app_ids: Mapping[str, str] = field(default_factory=dict)
    since: Positions | None = None
    began: bool = False
    agreed: bool = False
    former: Routes | None = None

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

    def renamed(self, now: Mapping[str, str]) -> Routes:
        """The same with the streams' names of today, by their former ones."""
        return replace(
            self,
            conditions={now.get(name, name): when for name, when in self.conditions.items()},
            rest=now.get(self.rest, self.rest),
            app_ids={now.get(name, name): app_id for name, app_id in self.app_ids.items()},
            former=self.former.renamed(now) if self.former else None,
        )

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "conditions": dict(self.conditions),
            "rest": self.rest,
            "app_ids": dict(self.app_ids),
            "since": None if self.since is None else {str(tp.partition): at for tp, at in self.since.items()},
            "began": self.began,
            "agreed": self.agreed,
            "former": self.former.to_plain() if self.former else None,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], topic: str) -> Routes:
        """As ``to_plain`` wrote it."""
        since, former = plain.get("since"), plain.get("former")
        return cls(
            conditions=plain["conditions"],
            rest=plain.get("rest", ""),
            app_ids=plain.get("app_ids", {}),
            since=None if since is None else {TopicPartition(topic, int(p)): at for p, at in since.items()},
            began=plain.get("began", False),
            agreed=plain.get("agreed", False),
            former=cls.from_plain(former, topic) if former else None,
        )


def same_positions(one: Positions | None, other: Positions | None) -> bool:
    """Whether both are the same offsets; a topic partition that is not in them begins at 0."""
    if one is None or other is None:
        return one is other
    return {tp: at for tp, at in one.items() if at} == {tp: at for tp, at in other.items() if at}


def after_restore(live: Routes | None, undone: Routes | None) -> Routes | None:
    """What a table has whose rows were set back by a RESTORE.

    Args:
        live: Of the newest ledger entry of the rows that are there.
        undone: Of the newest one before the RESTORE, as far as that is known.
    """
    if live is None:
        return None
    # Where it had gone over since, it is behind a point that others may have passed by other conditions: they must be
    # asked. So too where it was in doubt: an older entry knows nothing of that.
    same = undone is not None and live.same_as(undone) and same_positions(live.since, undone.since)
    known = undone if same else None
    return replace(
        live,
        agreed=live.agreed and known is not None and known.agreed,
        began=live.began and known is not None and known.began,
    )


def of_new_topic(routes: Routes | None) -> Routes | None:
    """What a table has that begins again with a topic that was made anew: of that, it holds nothing yet."""
    return replace(routes, since=None, began=False, former=None) if routes else None


def _stripped(conditions: Mapping[str, str]) -> dict[str, str]:
    return {name: when.strip() for name, when in conditions.items()}
