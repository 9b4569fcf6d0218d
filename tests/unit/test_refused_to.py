"""What a refusal says to run next: the command that was refused, be it a drain or something else."""

from __future__ import annotations

import pickle
import shlex
from datetime import date
from typing import Any, NoReturn

import pytest

from kdi_assets.drain.failures import refused_to
from kdi_assets.drain.refusals import (
    AccountingMismatch,
    AnotherDrainActive,
    DeadLettersGone,
    ReadOrWriteFailed,
    RetentionPassedPosition,
    RunAgain,
)
from kdi_assets.replay import deciding
from kdi_assets.replay import replay_letters as replaying
from kdi_assets.replay.chosen import ALL, Chosen
from kdi_assets.replay.gone import MessagesNotInKafka, Missing
from kdi_assets.stream import KafkaCluster, OffsetRange, Stream, TopicPartition

TP = TopicPartition("orders", 3)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))
REFUSALS = (
    AccountingMismatch(stream=STREAM.name, detail="7 against 8", ranges=(OffsetRange(TP, 0, 8),)),
    AnotherDrainActive(stream=STREAM.name, detail="version 9"),
    DeadLettersGone(stream=STREAM.name, uri="/lake/orders_dead_letters", happened="dropped"),
    ReadOrWriteFailed(stream=STREAM.name, step="committing", detail="no space"),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: type(r).__name__)
def test_a_refusal_names_a_drain_or_what_was_refused(refusal: RunAgain) -> None:
    mine = pickle.loads(pickle.dumps(refusal))
    with pytest.raises(type(refusal)) as refused, refused_to("kdi dead-letters replay bronze/orders"):
        raise mine

    assert refusal.parts()[2].startswith("kdi drain bronze/orders ")
    assert refused.value.parts()[2].startswith("kdi dead-letters replay bronze/orders ")
    assert pickle.loads(pickle.dumps(refused.value)).parts() == refused.value.parts()


def test_what_another_command_decides_stays_as_it_is() -> None:
    refusal = RetentionPassedPosition(stream="orders", topic_partition=TP, position=5, earliest=9)

    with pytest.raises(RetentionPassedPosition) as refused, refused_to("kdi dead-letters replay orders"):
        raise refusal

    assert refused.value.parts()[2] == "kdi resolve orders accept-loss --topic-partition orders/3 --until 9"


def test_a_choice_is_said_in_options() -> None:
    first, last = date(2026, 1, 1), date(2026, 1, 31)

    assert ALL.options() == ""
    assert Chosen(first, last).options() == " --from 2026-01-01 --to 2026-01-31"
    assert Chosen(offsets=OffsetRange(TP, 0, 1)).options() == " --topic-partition orders/3 --offset 0"
    assert Chosen(offsets=OffsetRange(TP, 0, 2**63 - 1)).options() == " --topic-partition orders/3"
    assert shlex.split(Chosen(reason="wrong type", field="a.'b'").options()) == [
        *("--reason", "wrong type"),
        *("--field", "a.'b'"),
    ]


def test_replays_and_discards_name_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*arguments: Any, **options: Any) -> NoReturn:
        raise AnotherDrainActive(stream=STREAM.name, detail="version 9")

    monkeypatch.setattr(deciding, "survey", overtaken)
    options: Any = {"lake": "/lake", "session": None, "chosen": Chosen(field="id")}

    with pytest.raises(AnotherDrainActive, match="Run:  kdi dead-letters replay bronze/orders --field id  "):
        replaying.replay_letters(STREAM, **options)
    with pytest.raises(AnotherDrainActive, match="Run:  kdi dead-letters replay bronze/orders --field id --dry-run  "):
        replaying.replay_dry(STREAM, **options)
    said = "Run:  kdi dead-letters discard bronze/orders --field id --because 'a test'  "
    with pytest.raises(AnotherDrainActive, match=said):
        replaying.discard_letters(STREAM, **options, decided_by="ann", because="a test")


def test_the_command_that_leaves_what_is_missing_keeps_what_the_replay_was_told() -> None:
    def proposed(flags: str) -> list[str]:
        day, missing = date(2026, 1, 2), Missing(messages=3, rows_by_date={date(2026, 1, 2): 3})
        gone = MessagesNotInKafka(stream="orders", first=day, last=day, messages=9, missing=missing, flags=flags)
        return [each.split("   (")[0] for each in gone.parts()[2].split(", or ")]

    asked = "kdi replay orders --from 2026-01-02 --to 2026-01-02"
    assert proposed("") == [f"{asked} --leave-missing", f"{asked} --into TABLE"]
    # A look takes letters as they come, and refuses the flag.
    assert proposed(" --accept-dead-letters") == [
        f"{asked} --leave-missing --accept-dead-letters",
        f"{asked} --into TABLE",
    ]
