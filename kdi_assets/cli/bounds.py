"""What an audit is restricted to, as it was typed: offsets, or moments that the broker translates into offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.given import moment_meant
from kdi_assets.cli.output import progress
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from kdi_assets.ledger.coverage import Bounds

FROM, TO, PARTITION = "--from", "--to", "--partition"


@dataclass(frozen=True, slots=True)
class Typed:
    """The options, read; ``None`` where one was not given."""

    only: TopicPartition | None
    start: int | datetime | None
    end: int | datetime | None

    def __bool__(self) -> bool:
        return self != Typed(None, None, None)


def typed(only: TopicPartition | None, start: str | None, end: str | None) -> Typed:
    """Read the options.

    Raises:
        typer.BadParameter: One is neither an offset nor a moment, or they are the wrong way round.
    """
    read = Typed(only, _position(start, FROM), _position(end, TO))
    if type(read.start) is type(read.end) and read.start is not None and read.start >= read.end:  # type: ignore[operator]
        raise typer.BadParameter(f"{start} is not before {TO} {end}", param_hint=FROM)
    return read


def bounds_meant(stream: Stream, typed: Typed, audited: Bounds) -> Bounds:
    """The offsets that are meant, cut to those that can be audited.

    Args:
        audited: From the first position of every topic partition to its current one.

    Raises:
        typer.BadParameter: The topic partition is not there, or the bounds leave nothing of it.
        BrokerUnreachable, TopicMissing: A moment cannot be translated.
    """
    chosen = {tp: r for tp, r in audited.items() if typed.only in (None, tp)}
    if not chosen:
        there = ", ".join(map(str, sorted(audited)))
        raise typer.BadParameter(f"{typed.only} was never drained; there are {there}", param_hint=PARTITION)
    for option, value in ((FROM, typed.start), (TO, typed.end)):
        if isinstance(value, int) and len(chosen) > 1:
            raise typer.BadParameter(f"an offset needs {PARTITION}: the topic has several", param_hint=option)
    starts, ends = _offsets(stream, typed.start, chosen, FROM), _offsets(stream, typed.end, chosen, TO)
    cut = {
        tp: OffsetRange(tp, max(r.start, starts.get(tp, r.start)), min(r.end, ends.get(tp, r.end)))
        for tp, r in chosen.items()
    }
    left = {tp: r for tp, r in cut.items() if r.start < r.end}
    if not left:
        held = ", ".join(map(str, chosen.values()))
        raise typer.BadParameter(f"nothing of {held} lies there", param_hint=FROM if typed.start is not None else TO)
    return left


def _position(text: str | None, option: str) -> int | datetime | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    return moment_meant(text, option, or_else="an offset, ")


def _offsets(
    stream: Stream, position: int | datetime | None, chosen: Mapping[TopicPartition, OffsetRange], option: str
) -> Mapping[TopicPartition, int]:
    """The first offset at or behind the position; before the broker's earliest there is no way to tell."""
    from kdi_assets.sources.kafka import offsets_at, read_topic

    if position is None:
        return {}
    if isinstance(position, int):
        return dict.fromkeys(chosen, position)
    topic = read_topic(stream.cluster, stream.topic)
    found = offsets_at(stream.cluster, topic, position)
    for tp, r in chosen.items():
        if tp in found and r.start < found[tp] == topic.partitions[tp].earliest:
            progress(f"{tp}: Kafka has nothing before offset {found[tp]} any more; {option} is taken for that offset")
    return found
