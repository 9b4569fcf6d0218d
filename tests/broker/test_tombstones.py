"""`tombstones` from the topic to both tables, and back in the audit."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from kdi_assets.drain.compare import compare
from tests.conftest import DrivenFactory

SHAPE: dict[str, Any] = {
    "record_ddl": "name string, at date",
    "date_expression": "coalesce(at, to_date(kafka.timestamp))",
    "coordinates": "kafka",
    "columns": {"id": "CAST(kafka.key AS STRING)", "deleted": "kafka.tombstone"},
}


def test_tombstones_become_rows_that_know_their_key_or_dead_letters(driven: DrivenFactory) -> None:
    """Procedure: the same messages to a stream of each kind; drain, audit, and compare with the topic."""
    rows, letters = (driven(partitions=1, tombstones=policy, **SHAPE) for policy in ("row", "dead_letter"))
    for web in (rows, letters):
        for value in ('{"name": "Ann", "at": "2026-03-01"}', None, "bad"):
            web.publisher.produce(web.stream.topic, value, key="a", partition=0)
        web.publisher.flush()

    reports = [web.drain() for web in (rows, letters)]

    kept, gone = sorted(rows.found().rows, key=lambda row: int(row["kafka"]["offset"]))
    assert (kept["id"], kept["name"], kept["deleted"]) == ("a", "Ann", False)
    assert (gone["id"], gone["name"], gone["at"], gone["deleted"]) == ("a", None, None, True)
    assert gone["date"] == gone["kafka"]["timestamp"].astimezone(UTC).date()
    letter = next(letter for letter in letters.found().dead_letters if letter["offset"] == 1)
    assert (letter["reason"], letter["field"], letter["key"], letter["value"]) == ("tombstone", None, b"a", None)
    counts = [(r.rows_added, r.dead_letters, sum(c.tombstones for c in r.commits)) for r in reports]
    assert counts == [(2, 1, 0), (1, 2, 0)]
    for web in (rows, letters):
        assert web.audit().complete
        assert compare(web.stream, lake=web.lake, session=web.session).agreed == 3
