"""How the dead letters of some dates stand, date by date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.drain.failures import spark_failures
from kdi_assets.ledger.history import live_history
from kdi_assets.ledger.letters import standing_letters
from kdi_assets.replay.chosen import Chosen, Group
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Standing:
    """Dead letters at one version of the stream's table.

    Attributes:
        version: −1: there is no table.
        by_date: By the date (UTC) of their messages' own timestamps, those of one state and reason together, the most
            frequent first.
    """

    version: int = -1
    by_date: Mapping[date, tuple[Group, ...]] = field(default_factory=dict)


def standing_by_date(session: Callable[[], SparkSession], stream: Stream, lake: str, chosen: Chosen) -> Standing:
    """Count the letters that are meant, by date, state and reason."""
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    if history is None:
        return Standing()
    letters = standing_letters(session(), stream, lake, history, with_messages=False).where(chosen.sql())
    with spark_failures(stream, "counting dead letters"):
        return Standing(history.version, counted_by_date(letters, stream.topic))


def counted_by_date(letters: DataFrame, topic: str) -> dict[date, tuple[Group, ...]]:
    """Letters by date, state and reason, the most frequent first.

    Args:
        letters: As ``standing_letters`` gives them.
    """
    from pyspark.sql import functions as F

    counted = letters.groupBy("date", "state", "reason", "field").agg(
        F.count("*").alias("letters"), F.min(F.struct("partition", "offset")).alias("example")
    )
    by_date: dict[date, list[Group]] = {}
    for r in counted.orderBy("date", F.desc("letters"), "reason", "field").collect():
        at = TopicPartition(topic, r["example"]["partition"]), r["example"]["offset"]
        of = Group(r["state"], r["reason"] or "", r["field"] or "", r["letters"], r["date"], r["date"], at)
        by_date.setdefault(r["date"], []).append(of)
    return {day: tuple(groups) for day, groups in by_date.items()}
