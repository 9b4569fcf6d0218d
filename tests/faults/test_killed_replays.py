"""Dead letters of a wrong schema come back while drains go on and both are killed, again and again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from kdi_assets.ledger.history import entries
from kdi_assets.message_rules import DeadLetterLimit
from kdi_assets.replay.chosen import ALL, Chosen
from kdi_assets.replay.replay_letters import replay_letters
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.condemned import states
from tests.conftest import DrivenFactory
from tests.driven import WEB_REQUESTS, DrivenStream
from tests.faults.busy import ATTACHED, Act, Busy
from tests.kafka_log import Produced

scenario = pytest.mark.scenario
PARTITIONS = 2
TOO_STRICT = WEB_REQUESTS.replace("status int", "status int NOT NULL")
"""A record that five of six messages here do not fit: they have no status."""
LETTERS, KILLS = 150, 3
BATCH = 24
"""Messages that come while a drain and a replay run."""


POINTS: dict[Act, Sequence[str]] = {
    "drain": (ATTACHED, "before reading", "files written", "accounted for"),
    "replay": (ATTACHED, "messages read", "files written", "letters written"),
}
"""Moments are counted from these: some of what lies between two of them takes no time."""


@dataclass
class Rounds:
    """A drain and a replay of some letters side by side, a random one of them killed at a random moment."""

    web: DrivenStream
    settings: Settings
    random: Random
    pieces: list[Chosen]
    killed: list[str] = field(default_factory=list)

    def run(self, number: int) -> None:
        """One round: messages come, both begin, one is killed if it still runs then, the other ends by itself."""
        produce(self.web, BATCH, seed=number)
        piece = self.pieces.pop() if self.pieces else ALL
        with side_by_side(self.web, self.settings, piece) as pair:
            victim = self.random.choice(pair)
            point, moment = self.random.choice(POINTS[victim.act]), self.random.uniform(0, 0.5)
            if victim.reaches(point) and not victim.ends_within(moment):
                victim.kill()
                self.killed.append(f"{victim.act} {moment:.2f} s behind {point!r}, by then behind {victim.point!r}")
                pair.remove(victim)
            for other in pair:
                other.await_end()


@contextmanager
def side_by_side(web: DrivenStream, settings: Settings, piece: Chosen) -> Iterator[list[Busy]]:
    """A drain and a replay, each in a process of its own, attached to the warm driver."""
    pair = [Busy("drain", web.stream, settings), Busy("replay", web.stream, settings, piece)]
    try:
        yield list(pair)
    finally:
        for busy in pair:
            busy.end()


def produce(web: DrivenStream, count: int, *, seed: int) -> list[Produced]:
    """Web requests, of which five of six have no status; everything that was ever produced."""
    values = WebRequests(Traffic(seed=1000 * web.seed + seed)).batch(count, now=datetime.now(UTC))
    for number, value in enumerate(values):
        assert value is not None
        said = value if number % 6 == 0 else re.sub(rb'"status":\d+,', b"", value)
        web.publisher.produce(web.stream.topic, said, key=f"k{number}", partition=number // 6 % PARTITIONS)
    return web.publisher.flush()


def pieces(web: DrivenStream, messages: int, count: int) -> list[Chosen]:
    """The letters of all messages so far, by ranges of offsets, at least so many."""
    each = messages // PARTITIONS // -(-count // PARTITIONS) + 1
    starts = range(0, messages // PARTITIONS + 1, each)
    tps = [TopicPartition(web.stream.topic, n) for n in range(PARTITIONS)]
    return [Chosen(offsets=OffsetRange(tp, start, start + each)) for tp in tps for start in starts]


def differing_rows(one: DrivenStream, other: DrivenStream) -> int:
    """Rows that are in one of the two tables, and not as often in the other; every column is compared."""
    first, second = (one.session().read.format("delta").load(web.uri) for web in (one, other))
    assert first.columns == second.columns
    return first.exceptAll(second).count() + second.exceptAll(first).count()


@scenario("killed after files are written")
@scenario("killed between dead letters and commit")
@scenario("killed during the commit")
def test_letters_of_a_wrong_schema_all_come_back_whatever_is_killed(driven: DrivenFactory, warm_home: Path) -> None:
    """Purpose: what a wrong schema has condemned must come back whole, while the stream goes on and processes die.
    Procedure: a record that five of six messages do not fit; drain; mend it. Then, until there were enough kills: more
    messages come; one process drains, one replays a part of the letters; a random one of them is killed (SIGKILL) at a
    random moment. In the end drain and replay once more, and drain the topic into a second table by the right schema.
    Pass: every offset exactly once; every letter is resolved, each counted as returned once; the audit is complete;
    both tables have the same rows.
    """
    web = driven(partitions=PARTITIONS, record_ddl=TOO_STRICT, dead_letter_limit=DeadLetterLimit(share=1.0))
    messages = LETTERS * 6 // 5
    produce(web, messages, seed=0)
    condemned = web.drain().dead_letters
    web.session().sql(f"ALTER TABLE delta.`{web.uri}` ALTER COLUMN status DROP NOT NULL")
    web = web.with_definition(record_ddl=WEB_REQUESTS)
    random = Random(web.seed)
    again = f"make faults SEED={web.seed}, or pytest tests/faults/{Path(__file__).name} --seed={web.seed}"

    settings = Settings(warm_home, web.lake, web.stream.cluster.bootstrap_servers, "local[2]", "shared")
    parts = pieces(web, messages, KILLS)
    random.shuffle(parts)
    rounds = Rounds(web, settings, random, parts)
    number = 0
    while len(rounds.killed) < KILLS:
        number += 1
        assert number <= 4 * KILLS, f"only these were still running then: {rounds.killed}; again: {again}"
        rounds.run(number)
    told = "\n  ".join((f"{number} rounds; again: {again}", *rounds.killed))
    print(told)  # noqa: T201  shown where the test fails, and with -s
    web.drain()
    replay_letters(web.stream, lake=web.lake, session=web.session)

    assert condemned == LETTERS
    web.assert_each_offset_once(web.publisher.flush())
    assert states(web) == {"resolved": LETTERS}, told
    returned = sum(sum(e.returned.values()) for e in entries(web.uri, web.stream.app_id))
    assert returned == LETTERS, told
    audit = web.audit()
    assert (audit.complete, audit.dead_letters) == (True, 0), (audit.notes, told)
    right = web.with_definition(table=f"{web.stream.table}_right", app_id="right")
    right.drain()
    assert differing_rows(web, right) == 0, told
