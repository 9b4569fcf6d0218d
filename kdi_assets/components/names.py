"""What Dagster calls our things: keys, dates, names of ops, pools and groups."""

from __future__ import annotations

import re
from hashlib import sha256

import dagster as dg

from kdi_assets.stream.stream import CheckName, Cluster, Stream


def table_key(stream: Stream) -> dg.AssetKey:
    """The asset of the stream's table: its path below the lake's root."""
    return dg.AssetKey(stream.table.split("/"))


def letters_key(stream: Stream) -> dg.AssetKey:
    """The asset of the stream's dead letters: their path, which is the table's with ``_dead_letters``."""
    *folders, table = table_key(stream).path
    return dg.AssetKey([*folders, f"{table}_dead_letters"])


def topic_key(cluster: Cluster, topic: str) -> dg.AssetKey:
    """The asset of a topic; streams of one topic share it."""
    return dg.AssetKey(["kafka", cluster.name, topic])


LETTERS_GROUP = "dead_letters"
"""Of all streams: whoever materializes a group of tables does not mean to replay what could not become rows."""


def check_key(stream: Stream, check: CheckName) -> dg.AssetCheckKey:
    """One of the checks of the stream's table."""
    return dg.AssetCheckKey(table_key(stream), check)


def dates(stream: Stream) -> dg.DailyPartitionsDefinition:
    """The date partitions of the stream's table, in UTC: its date window, as far ahead as rows may be dated.

    Those of its dead letters are the same days, of the messages' own timestamps.
    """
    return dg.DailyPartitionsDefinition(
        start_date=stream.date_window.start.isoformat(),
        end_offset=1 + stream.date_window.ahead_days,  # 0 would end with yesterday
        timezone="UTC",
    )


def identifier(*parts: str) -> str:
    """A name of letters, digits and ``_`` for the parts, another one for other parts.

    Plain parts stay readable; where characters had to be replaced a digest tells ``a.b`` from ``a_b`` (Dagster refuses
    two ops of one name).
    """
    name = "__".join(re.sub(r"[^A-Za-z0-9]", "_", part) for part in parts)
    if all(re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*", part) for part in parts):
        return name
    return f"{name}_{sha256('/'.join(parts).encode()).hexdigest()[:8]}"


def op_name(stream: Stream) -> str:
    """The op, and so the step, that drains the stream."""
    return identifier(*stream.table.split("/"))


def letters_op_name(stream: Stream) -> str:
    """The op that replays the stream's dead letters."""
    return identifier(*letters_key(stream).path)


def pool(stream: Stream) -> str:
    """One pool per stream, of which an instance runs one run at a time: what commits to it waits for each other."""
    return f"stream_{op_name(stream)}"


def group(stream: Stream) -> str | None:
    """The first folder of the table's path; ``None``, Dagster's default group, for a table directly below the root."""
    folder, separator, _ = stream.table.partition("/")
    return identifier(folder) if separator else None
