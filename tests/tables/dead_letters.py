"""Streams whose messages became dead letters by a mistake in their document, which is corrected now."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.streams.ledger.history import live_history
from kdi_assets.streams.ledger.letters import dead_letters_with_state
from kdi_assets.streams.replay.replay_letters import discard_letters, replay_letters
from kdi_assets.streams.replay.report import ReplayReport
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

WRONG = {"host": "CAST(CAST(url AS INT) AS STRING)"}
"""Columns for which every web request is a dead letter."""
RIGHT = {"host": "parse_url(url, 'HOST')"}


def with_letters(driven: DrivenFactory, count: int = 60, *, bad: float = 0.2, partitions: int = 2) -> DrivenStream:
    """A stream whose messages are all dead letters, and whose document is correct now."""
    web = driven(partitions=partitions, columns=WRONG, dead_letter_limit=DeadLetterLimit(share=1.0))
    web.produce(count, bad=bad)
    web.drain()
    return web.with_definition(columns=RIGHT)


def states(web: DrivenStream) -> Counter[str]:
    """How many letters are open, resolved, discarded."""
    history = live_history(web.uri, web.stream.app_id)
    assert history is not None
    found = dead_letters_with_state(web.session(), web.stream, web.lake, history)
    return Counter(r["state"] for r in found.collect())


def replayed(web: DrivenStream, *, dry: bool = False, **options: Any) -> ReplayReport:
    """Replay the dead letters, or dry-run."""
    return replay_letters(web.stream, lake=web.lake, session=web.session, dry_run=dry, **options)


def discarded(web: DrivenStream, *, because: str, **options: Any) -> ReplayReport:
    """Discard the dead letters."""
    decided = {"decided_by": "ann", "because": because, **options}
    return discard_letters(web.stream, lake=web.lake, session=web.session, **decided)
