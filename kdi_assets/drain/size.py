"""Size: what an offset is expected to weigh, before it is read. No JVM."""

from __future__ import annotations

from kdi_assets.drain.survey import Survey
from kdi_assets.ledger.recent import bytes_to_expect, recent_commits
from kdi_assets.sources.kafka_messages import sampled_bytes
from kdi_assets.stream import Stream

UNKNOWN_BYTES = 10_000.0
"""Where neither the ledger nor the brokers tell: more than most messages have, so that a first plan is too small."""


def offset_bytes(stream: Stream, lake: str, seen: Survey) -> float | None:
    """Bytes of keys and values, uncompressed, to expect of an offset that waits.

    As the newest drains found them; before the first one, as a few messages at the positions are.

    Returns:
        ``None`` where nobody asks: the stream does not bound its plans by bytes, or nothing waits.

    Raises:
        KdiError: The log cannot be read, or the brokers refuse our credentials.
    """
    if stream.max_bytes is None or seen.settlement or not seen.backlog():
        return None
    if told := bytes_to_expect(recent_commits(stream.table_uri(lake), stream.app_id)):
        return told
    return sampled_bytes(stream.cluster, seen.waiting()) or UNKNOWN_BYTES
