"""A Spark view of the dead letters that count, with the four columns of kafka-delta-ingest's dead-letter tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import quoted_path
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import OUTCOME

_NOTHING = (
    "SELECT CAST(NULL AS STRING) AS base64_bytes, CAST(NULL AS STRING) AS json_string, CAST(NULL AS STRING) AS error,\n"
    "  CAST(NULL AS TIMESTAMP) AS timestamp\nWHERE false"
)
_TEXT = "CAST(value AS STRING)"
_PARSED = f"try_parse_json(concat('[', {_TEXT}, ',0]'))"
# Spark's parser ignores text after a document. With our 0 appended, such a value has no second or a third element.
_IS_JSON = " AND ".join(
    (
        f"is_valid_utf8({_TEXT})",
        f"try_variant_get({_PARSED}, '$[1]', 'variant') IS NOT NULL",
        f"try_variant_get({_PARSED}, '$[2]', 'variant') IS NULL",
    )
)
_QUERY = """SELECT
  CASE WHEN NOT is_json THEN base64(value) END AS base64_bytes,
  CASE WHEN is_json THEN {text} END AS json_string,
  concat_ws(' in ', reason, field) AS error,
  condemned_at AS timestamp
FROM (
  SELECT *, {is_json} AS is_json
  FROM (
    SELECT value, reason, field, drain.condemned_at,
      row_number() OVER (PARTITION BY partition, offset, letter.timestamp ORDER BY drain.version DESC) AS newest
    FROM delta.`{uri}` AS letter
    JOIN (VALUES
      {drains}
    ) AS drain(attempt_id, version, condemned_at) ON letter.attempt_id = drain.attempt_id
    WHERE {letters_alone}
  )
  WHERE newest = 1
)"""


def entries_with_dead_letters(history: LiveHistory) -> tuple[LedgerEntry, ...]:
    """The live entries that may have added dead letters, oldest first."""
    return tuple(e for e in history.entries if e.planned_at and (e.dead_letters or e.outcomes or e.letters_by_date))


def select_sql(stream: Stream, lake: str, entries: Sequence[LedgerEntry]) -> str:
    """A query of Spark SQL: ``base64_bytes: string, json_string: string, error: string, timestamp: timestamp``.

    Returns every message with a dead letter that counts once, even if it became a row by a replay. The message is in
    ``json_string`` if it is JSON and in ``base64_bytes`` if not; both are null if the dead letter has no message. The
    timestamp is that of the drain, as in kafka-delta-ingest.

    Source: kafka-delta-ingest, ``src/dead_letters.rs``.
    """
    letters = TableLog.open(stream.dead_letters_uri(lake))
    if letters is None or not entries:
        return _NOTHING
    columns = {f["name"] for f in letters.schema["fields"]}
    return _QUERY.format(
        text=_TEXT,
        is_json=_IS_JSON,
        uri=letters.uri.replace("`", "``"),
        drains=",\n      ".join(map(_row, entries)),
        # Records of outcomes are in the same table and are not dead letters.
        letters_alone=f"{OUTCOME} IS NULL" if OUTCOME in columns else "true",
    )


def view_sql(name: str, select: str) -> str:
    """The statement that creates the view: a temporary one, or a permanent one if the name has a schema."""
    kind = "VIEW" if "." in name else "TEMPORARY VIEW"
    return f"CREATE OR REPLACE {kind} {quoted_path(name)} AS\n{select}"


def _row(entry: LedgerEntry) -> str:
    moment = entry.planned_at.astimezone(UTC).isoformat(" ").replace("+00:00", "Z") if entry.planned_at else ""
    return f"('{entry.attempt_id}', {entry.version}, TIMESTAMP'{moment}')"
