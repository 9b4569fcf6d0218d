"""The oracle over what Spark reads: of shallow clones and column mapping, delta-rs reads the log and not the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdi_assets.ledger.history import live_history
from tests.driven import DrivenStream
from tests.kafka_log import Produced
from tests.oracle import Found, assert_each_offset_once


def assert_spark_finds_each_offset_once(web: DrivenStream, produced: Sequence[Produced]) -> None:
    """Ask the oracle about the rows and letters that Spark finds."""
    history = live_history(web.uri, web.stream.app_id)
    attempts = {e.attempt_id for e in history.entries} if history else set()
    letters = [x for x in _rows(web, web.stream.dead_letters_uri(web.lake)) if x["attempt_id"] in attempts]
    found = Found(_rows(web, web.uri), letters)
    assert_each_offset_once(produced, found, coordinates=web.stream.coordinates, seed=web.seed)


def _rows(web: DrivenStream, uri: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in web.session().read.format("delta").load(uri).collect()]
