"""What the commands print, what a refusal says to run next, and the exit codes that they give."""

from __future__ import annotations

import json
import pickle
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

from kdi_assets.cli.output import error_fields, exit_code, to_json
from kdi_assets.cli.streams.peek import PeekedMessage
from kdi_assets.documents.loading.errors import UnknownStream
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.errors import KdiError, Terminal
from kdi_assets.messages.kafka.errors import BrokerUnreachable, TopicMissing
from kdi_assets.streams.drain.errors import AccountingMismatch, AnotherDrainActive, DeadLettersGone
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.replay import replay_letters as replaying
from kdi_assets.streams.replay import replay_transaction
from kdi_assets.streams.replay.dead_letter_filter import ALL, DeadLetterFilter
from kdi_assets.streams.replay.report import MessagesGone, Missing
from kdi_assets.streams.spark_errors import ReadOrWriteFailed, RunAgain, refused_to
from kdi_assets.wording import duration, first_line, printable
from tests.typed import Kdi

DECIDE = TopicMissing(cluster="main", topic="orders", bootstrap_servers="b:1")
RETRY = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")
USAGE = UnknownStream(name="ordres", known=("orders",))
TP = TopicPartition("orders", 3)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (ValueError("\n not so\nat line 2"), "not so"),
        (ValueError(""), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        ("", ""),
    ],
)
def test_an_error_without_a_message_is_named_by_its_class(said: object, line: str) -> None:
    assert first_line(said) == line


@pytest.mark.parametrize(
    ("refusals", "code"),
    [([], 0), ([RETRY], 75), ([DECIDE], 1), ([RETRY, DECIDE, RETRY], 1), ([USAGE], 2)],
)
def test_the_exit_code_is_that_of_the_worst_refusal(refusals: Sequence[KdiError], code: int) -> None:
    assert exit_code(refusals) == code


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (38, "38 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (530_000, "6 d 3 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_would_steer_a_terminal_is_escaped_and_the_rest_is_not() -> None:
    assert printable("Größe 10 €: \x1b[31mred\x9b\n") == "Größe 10 €: \\x1b[31mred\\x9b\\n"


def test_json_names_topic_partitions_ranges_dates_and_moments_in_one_way() -> None:
    noon_in_berlin = datetime(2026, 7, 1, 14, 0, 0, tzinfo=timezone(timedelta(hours=2)))

    answer = to_json(
        {
            "positions": {TP: 7},
            "ranges": (OffsetRange(TP, 1, 3),),
            date(2026, 7, 1): noon_in_berlin,
            "lag_seconds": None,
            "folder": Path("/lake"),
        }
    )

    assert json.loads(json.dumps(answer)) == {
        "positions": {"orders/3": 7},
        "ranges": [{"topic_partition": "orders/3", "start": 1, "end": 3}],
        "2026-07-01": "2026-07-01T12:00:00Z",
        "lag_seconds": None,
        "folder": "/lake",
    }


def test_an_error_in_json_has_its_numbers_and_its_three_parts() -> None:
    refusal = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=10, earliest=25)

    told = to_json(error_fields(refusal))

    assert isinstance(told, dict)
    assert {name: told[name] for name in ("type", "retry_helps", "topic_partition", "position", "earliest")} == {
        "type": "RetentionPassedPosition",
        "retry_helps": False,
        "topic_partition": "orders/3",
        "position": 10,
        "earliest": 25,
    }
    assert (told["happened"], told["safe"], told["run"]) == refusal.message_parts()


AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def peeked(**fields: Any) -> PeekedMessage:
    return PeekedMessage(TopicPartition("orders", 0), 7, "2026-03-01T12:00:00Z", **fields)


@pytest.mark.parametrize(
    ("message", "verdict", "lines"),
    [
        (peeked(rows=['{"id":7}'], count=1), "row", ['{"id":7}']),
        (peeked(has_value=False, tombstones="row", rows=['{"id":null}'], count=1), "row", ['{"id":null}']),
        (peeked(rows=["{}", "[]"], count=7), "row: 7 rows", ["{}", "[]", "(and 5 more)"]),
        (peeked(reason="no_date", field="date", value=b"{}"), "dead letter: no_date in date", ["{}"]),
        (peeked(reason="no_date", field="date"), "dead letter: no_date in date", ["(its value is withheld)"]),
        (peeked(has_value=False, tombstones="dead_letter", reason="tombstone"), "dead letter: tombstone", []),
        (peeked(), "filtered", []),
        (peeked(has_value=False), "tombstone", []),
        (peeked(has_value=False, tombstones="row"), "filtered", []),
    ],
)
def test_a_message_is_shown_with_its_verdict_and_value(message: PeekedMessage, verdict: str, lines: list[str]) -> None:
    first, *others = message.text().splitlines()

    assert first.startswith("orders/0 offset 7, ")
    assert first.endswith(f": {verdict}")
    assert [line.strip() for line in others] == lines
    assert message.fields()["verdict"] == verdict.partition(":")[0]
    assert message.fields()["value"] == (message.value.decode() if message.value is not None else None)


STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "nowhere:1"))
REFUSALS = (
    AccountingMismatch(stream=STREAM.name, detail="7 against 8", ranges=(OffsetRange(TP, 0, 8),)),
    AnotherDrainActive(stream=STREAM.name, detail="version 9"),
    DeadLettersGone(stream=STREAM.name, uri="/lake/orders_dead_letters", change="dropped"),
    ReadOrWriteFailed(stream=STREAM.name, step="committing", detail="no space"),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: type(r).__name__)
def test_a_refusal_names_a_drain_or_what_was_refused(refusal: RunAgain) -> None:
    mine = pickle.loads(pickle.dumps(refusal))
    with pytest.raises(type(refusal)) as refused, refused_to("kdi dead-letters replay bronze/orders"):
        raise mine

    assert refusal.message_parts()[2].startswith("kdi drain bronze/orders ")
    assert refused.value.message_parts()[2].startswith("kdi dead-letters replay bronze/orders ")
    assert pickle.loads(pickle.dumps(refused.value)).message_parts() == refused.value.message_parts()


def test_json_shows_the_fields_of_an_error_beside_its_three_parts() -> None:
    shown = error_fields(DeadLettersGone(stream="orders", uri="/lake/orders_dead_letters", change="dropped"))

    assert shown["change"] == "dropped"
    assert shown["happened"] == "orders: the dead letters in /lake/orders_dead_letters were dropped before the commit."


def test_no_field_of_an_error_hides_behind_a_part_of_its_message() -> None:
    by_texts = [kind for kind in _errors(KdiError) if kind.message_parts is KdiError.message_parts]
    hidden = [(kind.__name__, f.name) for kind in by_texts for f in fields(kind) if _hidden(kind, f.name)]

    assert DeadLettersGone in by_texts and not hidden


def test_an_error_takes_the_fields_that_its_class_and_its_base_classes_declare() -> None:
    class Late(Terminal):
        what_happened, what_is_safe, what_to_run = "{topic} came {seconds} s late.", "all.", "kdi drain"
        topic: str
        seconds: int = 7

    class Later(Late):
        more: ClassVar[int] = 0
        less: int = 1

    one = Later(topic="a", less=2)
    assert asdict(one) == {"topic": "a", "seconds": 7, "less": 2}
    assert asdict(replace(one, topic="b")) == {"topic": "b", "seconds": 7, "less": 2}
    assert repr(one).endswith("Later(topic='a', seconds=7, less=2)")
    assert str(Later(topic="a")).startswith("a came 7 s late.")
    with pytest.raises(TypeError, match="topic"):
        Late()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="les"):
        Later(topic="a", les=2)  # type: ignore[call-arg]


def _hidden(kind: type[KdiError], field: str) -> bool:
    """Whether a part of the message has the field's name in ``--json``, and is not just the field."""
    if field in ("type", "retry_helps"):
        return True
    parts = {"happened": "what_happened", "safe": "what_is_safe", "run": "what_to_run"}
    return field in parts and getattr(kind, parts[field]) != f"{{{field}}}"


def _errors(base: type[KdiError]) -> Iterator[type[KdiError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _errors(kind)


def test_what_another_command_decides_stays_as_it_is() -> None:
    refusal = RetentionPassedPosition(stream="orders", topic_partition=TP, position=5, earliest=9)

    with pytest.raises(RetentionPassedPosition) as refused, refused_to("kdi dead-letters replay orders"):
        raise refusal

    assert refused.value.message_parts()[2].startswith("kdi resolve orders accept-loss --topic-partition orders/3")


def test_a_choice_is_said_in_options() -> None:
    first, last = date(2026, 1, 1), date(2026, 1, 31)

    assert ALL.options() == ""
    assert DeadLetterFilter(first, last).options() == " --from 2026-01-01 --to 2026-01-31"
    assert DeadLetterFilter(offsets=OffsetRange(TP, 0, 1)).options() == " --topic-partition orders/3 --offset 0"
    assert DeadLetterFilter(offsets=OffsetRange(TP, 0, 2**63 - 1)).options() == " --topic-partition orders/3"
    assert shlex.split(DeadLetterFilter(reason="wrong type", field="a.'b'").options()) == [
        *("--reason", "wrong type"),
        *("--field", "a.'b'"),
    ]


def test_replays_and_discards_name_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*arguments: Any, **options: Any) -> NoReturn:
        raise AnotherDrainActive(stream=STREAM.name, detail="version 9")

    monkeypatch.setattr(replay_transaction, "take_snapshot", overtaken)
    options: Any = {"lake": "/lake", "session": None, "letter_filter": DeadLetterFilter(field="id")}

    with pytest.raises(AnotherDrainActive, match="Run:  kdi dead-letters replay bronze/orders --field id --yes  "):
        replaying.replay_letters(STREAM, **options)
    with pytest.raises(AnotherDrainActive, match="Run:  kdi dead-letters replay bronze/orders --field id  "):
        replaying.replay_letters(STREAM, **options, dry_run=True)
    said = "Run:  kdi dead-letters discard bronze/orders --field id --because 'a test' --yes  "
    with pytest.raises(AnotherDrainActive, match=said):
        replaying.discard_letters(STREAM, **options, decided_by="ann", because="a test")


def test_the_command_that_leaves_what_is_missing_keeps_what_the_replay_was_told() -> None:
    def proposed(flags: str) -> list[str]:
        day, missing = date(2026, 1, 2), Missing(messages=3, rows_by_date={date(2026, 1, 2): 3})
        gone = MessagesGone(stream="orders", first=day, last=day, messages=9, missing=missing, flags=flags)
        return [each.split("   (")[0] for each in gone.message_parts()[2].split("; or ")]

    asked = "kdi replay orders --from 2026-01-02 --to 2026-01-02"
    assert proposed("") == [f"{asked} --leave-missing --yes", f"{asked} --into TABLE"]
    # A dry run accepts any number of letters, and refuses the flag.
    assert proposed(" --accept-dead-letters") == [
        f"{asked} --leave-missing --accept-dead-letters --yes",
        f"{asked} --into TABLE",
    ]


def test_names_of_fields_that_messages_bring_do_not_control_the_terminal() -> None:
    counts = FieldCounts(2, {"\x1b]0;owned\x07\r0 rows": 2})

    assert counts.listed() == r"\x1b]0;owned\x07\r0 rows (2)"


def test_an_upkeep_of_a_table_that_does_not_exist_offers_nothing_to_do(kdi: Kdi) -> None:
    assert kdi("upkeep", "orders").out == "bronze/orders: there is no table yet\n"
