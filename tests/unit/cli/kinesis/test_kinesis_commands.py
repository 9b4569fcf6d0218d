"""Every command and every reader of states, over a stream of Kinesis: an answer, or a refusal that says what to run."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from kdi_assets.cli.app import OF_A_LAKE, app_for
from kdi_assets.components.topics import topic_assets
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.operate.monitoring.backlog import State
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.metrics.collector import stream_collector
from kdi_assets.operate.monitoring.stream_row import stream_row_reader
from kdi_assets.sensors.lag import lag_sensors
from kdi_assets.sensors.observe import Observations
from kdi_assets.streams.drain.drain import Draining
from kdi_assets.streams.drain.errors import TooManyDeadLetters
from kdi_assets.streams.drain.execute_plan import DrainContext
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.ledger.positions import read_ledger
from kdi_assets.streams.rules.errors import ExpectationNotMet, UnknownFieldsFound
from tests.documents import written
from tests.kinesis.drained import Drained, NoSparkHere, document, drained, no_spark
from tests.table_by_hand import TP, TableByHand
from tests.typed import Kdi

ELSEWHERE = {"import-kdi", "jars", "psql", "broker", "driver", "kinesis", "generate"}
"""Commands that are about no stream of a document."""
DATES = ("--from", "2026-01-01", "--to", "2026-01-02")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("doctor",),
    ("doctor", "orders"),
    ("new", "orders"),
    ("new", "orders", "--cluster", "eu"),
    ("status",),
    ("status", "orders", "--json"),
    ("freshness",),
    ("cost", "orders"),
    ("plan", "orders"),
    ("drain", "orders"),
    ("drain", "--all", "--json"),
    ("refine", "orders"),
    ("serve", "orders"),
    ("audit", "orders"),
    ("audit", "orders", "--against-source"),
    ("audit", "orders", "--from", "2026-01-01"),
    ("peek", "orders"),
    ("peek", "orders", "--last"),
    ("history", "orders"),
    ("dead-letters", "list", "orders"),
    ("dead-letters", "show", "orders", "--topic-partition", "0", "--offset", "7"),
    ("dead-letters", "replay", "orders"),
    ("dead-letters", "discard", "orders", "--because", "a test"),
    ("dead-letters", "view", "orders"),
    ("replay", "orders", *DATES),
    ("replay", "orders", *DATES, "--yes"),
    *(("resolve", "orders", action) for action in ("accept-loss", "new-topic", "rewind", "adopt")),
    ("resolve", "orders", "adopt-dead-letters"),
    ("resolve", "orders", "accept-routes", "--because", "a test"),
    ("upkeep", "orders"),
    ("erase", "orders", "--where", "id = 1"),
    ("check",),
    ("check-assets", "orders"),
    ("sql", "SELECT 1"),
    ("metrics", "serve", "--help"),
)


def test_every_command_about_streams_is_walked() -> None:
    known = set(typer.main.get_command(app_for(())).commands)  # type: ignore[attr-defined]

    assert known - ELSEWHERE == {words[0] for words in COMMANDS}
    assert set(OF_A_LAKE) <= known - ELSEWHERE


@pytest.mark.parametrize("has_table", [False, True], ids=["no table", "drained"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_answers_or_refuses_while_kinesis_does_not_answer(
    kdi: Kdi, tmp_path: Path, lake: str, words: tuple[str, ...], has_table: bool
) -> None:
    document(tmp_path / "defs")
    if has_table:
        drained(lake)

    answer = kdi(*words)

    assert answer.code in (0, 1, 2, 75)
    assert answer.code != 1 or re.search("Run: |MISSING|wrong", answer.err + answer.out)
    assert not re.search("Traceback|AttributeError|TypeError|KafkaCluster|broker", answer.err + answer.out) or (
        words[-1] == "--help" or words[0] == "doctor"
    )


@pytest.mark.parametrize("has_table", [False, True], ids=["no table", "drained"])
def test_a_reader_of_states_answers_or_refuses_while_kinesis_does_not_answer(
    tmp_path: Path, lake: str, has_table: bool
) -> None:
    stream = document(tmp_path / "defs")
    if has_table:
        drained(lake)

    (row,) = stream_row_reader([stream], lake)()
    assert (row.state, row.behind, row.next_command) == (State.UNREACHABLE, None, "kdi drain bronze/orders")
    assert row.facts["cluster"] == "eu"
    assert {family.name for family in stream_collector([stream], lake).collect()}
    for name in stream.check_names:
        try:
            run_check(name, CheckSubject(stream, lake, no_spark))
        except KdiError as refused:
            assert all(refused.message_parts())
    backlogs = read_backlogs([stream], lake=lake)
    Observations().due(backlogs, {stream.name: stream}, now=0.0)
    assert [sensor.name for sensor in lag_sensors([stream])] == ["lag_eu"]
    assert len(topic_assets([stream])) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--topic-partition", "0", "--offset", "1"), 2, "orders/0 is drained up to 1"),
        (("--topic-partition", "1"), 2, "the topic has no orders/1"),
        (("--offset", "0"), 1, r"commits that drained offsets \[0, .* are in neither .*"),
        (("--last",), 1, r"commits that drained offsets \[0, .* are in neither .*"),
        ((), 1, "Spark is needed"),
    ],
)
def test_peek_shows_what_waits_or_what_spans_lead_to(
    kdi: Kdi, orders: Drained, words: tuple[str, ...], code: int, said: str
) -> None:
    """Procedure: a record waits, and the ledger knows no span of the drained one."""
    orders.put()
    orders.server.advance(1)

    answer = kdi("peek", "orders", *words)

    assert answer.code == code
    assert re.search(said, re.sub(r"[\s│]+", " ", answer.err))


UNKNOWN = "records of bronze/orders have offsets by being drained: none belongs to a time"
NOT_SET = "nobody can set one"


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("audit", "orders", "--from", "2026-01-01"), UNKNOWN),
        (("resolve", "orders", "accept-loss"), "accept-loss does not apply: no record of orders is known to be lost"),
        (
            ("resolve", "orders", "accept-loss", "--topic-partition", "0", "--until", "7"),
            f"accept-loss does not apply: --until: .* {NOT_SET}",
        ),
        (("resolve", "orders", "accept-loss", "--topic-partition", "7"), "the topic has no orders/7"),
        (("resolve", "orders", "rewind", "--to-timestamp", "2100-01-01T00:00:00Z"), "nothing below the positions"),
        (("resolve", "orders", "rewind", "--to-version", "0"), "before the stream's first ledger commit"),
        (("resolve", "orders", "rewind", "--to-version", "1"), "nothing below the positions"),
        (("resolve", "orders", "rewind", "--to-version", "7"), "there is no version 7"),
        (("resolve", "orders", "rewind", "--topic-partition", "0", "--to", "1"), "nothing below the positions"),
        (("resolve", "orders", "rewind", "--topic-partition", "0", "--to", "0"), r"commits that drained offsets \[0"),
        (("resolve", "orders", "adopt"), f"adopt does not apply: .* {NOT_SET}"),
        (("resolve", "orders", "new-topic"), "new-topic does not apply: topic id .* is the one"),
        (("resolve", "orders", "accept-routes", "--because", "x"), "accept-routes does not apply"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_stream_of_kinesis_cannot_have_is_refused(
    kdi: Kdi, orders: Drained, words: tuple[str, ...], refused: str
) -> None:
    orders.put()

    answer = kdi(*words)

    assert answer.code == 1
    assert re.search(refused, answer.err)
    assert re.search(r"Run: +kdi (history|drain|plan|audit)", answer.err)


def test_what_retention_took_is_shown_with_its_interval_by_the_command_that_the_refusal_names(
    kdi: Kdi, orders: Drained, tmp_path: Path
) -> None:
    """Procedure: two tables of one stream, so that its name alone is none of a table."""
    second = (tmp_path / "defs" / "orders" / "defs.yaml").read_text().split("---")[1]
    written(
        tmp_path / "defs",
        late=second.replace("bronze/orders", "bronze/late").replace("stream_name", "app_id: late, stream_name"),
    )
    orders.put()
    orders.server.advance(30 * 3600)

    refused = kdi("plan", "bronze/orders")
    command = re.search(r"Run: +kdi (.*?) --yes ", refused.err)
    assert command, refused.err
    shown, (fields,) = kdi(*command[1].split()), kdi(*command[1].split(), "--json").objects

    assert command[1] == "resolve bronze/orders accept-loss"
    assert "declared loss: orders/0 [1, 2), 1 offset: records that arrived between 20" in shown.out
    assert "nothing was changed" in shown.out.lower()
    assert fields["positions_after"] == {"orders/0": 2}
    ((since, until),) = fields["lost_between"].values()
    assert (until - since) / 3_600_000 == pytest.approx(30, abs=0.1), "the stream has no record any more"


def test_a_stream_that_was_made_again_retires_every_shard_of_the_old_one(kdi: Kdi, orders: Drained, lake: str) -> None:
    """Procedure: the table began when shards 0 to 3 had expired; the new stream has fewer shards than the old one."""
    shutil.rmtree(Path(lake) / "bronze")
    old = {TopicPartition("orders", number): 5 for number in range(4, 8)}
    marks = dict.fromkeys(old, Bookmark("49", digest="d"))
    TableByHand(lake).ledger_commit("drain", at=old, bookmarks=marks, topic_id="of the old stream")

    (fields,) = kdi("resolve", "orders", "new-topic", "--json").objects

    assert fields["positions_after"] == {"orders/0": 0, **dict.fromkeys(map(str, old))}, "null is retired"


@pytest.mark.parametrize("more", [(), ("--cluster", "eu")], ids=" ".join)
def test_a_document_for_a_stream_of_kinesis_is_written_by_hand(kdi: Kdi, tmp_path: Path, more: tuple[str, ...]) -> None:
    document(tmp_path / "defs")

    answer = kdi("new", "orders", *more)

    assert answer.code == 2
    assert "write the document of a stream of Kinesis: docs/kinesis.md" in re.sub(r"[\s│]+", " ", answer.err)


@pytest.mark.parametrize("known", [True, False])
def test_a_refusal_names_the_offset_to_show_only_where_a_message_has_one_before_it_is_drained(known: bool) -> None:
    place: Any = {"topic_partition": TP, "offset": 7, "messages": 9, "knows_offsets": known}
    refusals = (
        TooManyDeadLetters(stream="x", dead_letters=9, messages=9, limit="1", reasons=()),
        UnknownFieldsFound(stream="x", fields=FieldCounts(1, {"f": 1}), **place),
        ExpectationNotMet(stream="x", expectation="e", sql="true", count=1, **place),
    )

    runs = [refusal.message_parts()[2] for refusal in refusals]

    assert [run.startswith("kdi peek x") and "kdi check" in run for run in runs] == [True] * 3
    assert ["--offset 7" in run for run in runs] == [False, known, known]


def test_an_erasure_finds_the_positions_of_shards_whose_numbers_do_not_begin_at_0(
    kdi: Kdi, tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, seen = document(tmp_path / "defs"), []
    late = TopicPartition("orders", 1_200)
    drained(lake, tp=late, topic_id="x")

    def spy(ledger: Any, *_: object) -> NoReturn:
        seen.append(ledger.positions)
        raise NoSparkHere

    monkeypatch.setattr("kdi_assets.operate.erase.erase.history_at", spy)
    assert kdi("erase", "orders", "--where", "id = 1").code == 1

    assert seen == [{late: 3}]
    known = read_ledger(stream, lake, topic_id="x", topic_partitions=1_201)
    assert known and known.positions == {late: 3}


@pytest.mark.parametrize(("max_bytes", "most"), [(50_000, 5), (None, 1_000)])
def test_a_drain_reads_no_more_of_a_stream_than_a_plan_may_have(
    orders: Drained, lake: str, monkeypatch: pytest.MonkeyPatch, max_bytes: int | None, most: int
) -> None:
    """What is read beyond the plan is read again by the next one; a record of unknown size counts as 10 kB."""
    asked, hold = list[int](), KinesisSource.hold

    def held(*args: Any, most: int) -> Any:
        asked.append(most)
        return hold(*args, most=most)

    monkeypatch.setattr(KinesisSource, "hold", held)
    stream = replace(orders.stream, max_bytes=max_bytes, max_records=1_000)

    draining = Draining(DrainContext(stream=stream, lake=lake, session=no_spark), on_commit=lambda commit: None)

    assert (draining.next_step(), asked) == (None, [most])
