"""Every command and every reader of states, over a stream of Kinesis: an answer, or a refusal that says what to run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from kdi_assets.cli.main import OF_A_LAKE, app
from kdi_assets.cli.session import LazySession
from kdi_assets.components.topics import topic_assets
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError, Terminal
from kdi_assets.messages.bookmarks import Bookmark
from kdi_assets.messages.kinesis.client import digest_of
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.operate.monitoring.backlog import State
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.metrics.collector import stream_collector
from kdi_assets.operate.monitoring.stream_row import stream_row_reader
from kdi_assets.sensors.lag import lag_sensors
from kdi_assets.sensors.observe import Observations
from kdi_assets.streams.drain.errors import TooManyDeadLetters
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.ledger.positions import read_ledger
from kdi_assets.streams.rules.errors import ExpectationNotMet, UnknownFieldsFound
from kdi_assets.tools.local.kinesis.faults import Fault, ServerClock
from kdi_assets.tools.local.kinesis.server import KinesisServer, start_kinesis
from tests.documents import written
from tests.kinesis.endpoint import kinesis_client
from tests.table_by_hand import TP, TableByHand
from tests.typed import Kdi, typed

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


class NoSparkHere(Terminal):
    """A unit test starts no JVM."""

    what_happened = "Spark is needed."
    what_is_safe = "everything."
    what_to_run = "the tests of tests/spark"


def no_spark(*_: object) -> NoReturn:
    raise NoSparkHere


def document(folder: Path, endpoint: str = "http://127.0.0.1:1") -> Stream:
    """The stream ``bronze/orders``, as a document in the folder describes it."""
    connection = f"{{name: eu, region: eu-central-1{f', endpoint: {endpoint!r}' * bool(endpoint)}}}"
    fields = "stream_name: orders, connection: eu, table: bronze/orders, schema: id bigint, date: current_date()"
    kdi = "type: kdi_assets.components"
    text = f"{kdi}.KinesisConnection\nattributes: {connection}\n---\n{kdi}.KinesisTable\nattributes: {{{fields}, "
    text += "freshness: {warn: 5 minutes, fail: 2 hours}}\n"
    (only,) = load_streams(written(folder, orders=text)).values()
    return only


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: str) -> None:
    given = {"KDI_LAKE": lake, "KDI_DEFS": str(tmp_path / "defs"), "KDI_HOME": str(tmp_path / "home")}
    for name, value in (given | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(LazySession, "__call__", no_spark)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the attempts of botocore


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    return typed(monkeypatch, capsys)


def drained(lake: str, *, at: int = 3, tp: TopicPartition = TP, **fields: Any) -> TableByHand:
    """A table that a drain has filled up to this number."""
    table = TableByHand(lake)
    table.ledger_commit("drain", at={tp: at}, bookmarks={tp: Bookmark("49", digest="d")}, **fields)
    return table


def test_every_command_about_streams_is_walked() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]

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


class Drained:
    """A stream with a shard on a server of ours, and a table that has its first record."""

    def __init__(self, server: KinesisServer, folder: Path, lake: str) -> None:
        self.server, self.client = server, kinesis_client(server.endpoint)
        self.client.create_stream(StreamName="orders", ShardCount=1)
        server.advance(60)
        sequence = self.put()
        server.advance(1)
        self.stream = document(folder, server.endpoint)
        source = KinesisSource(KinesisRegion("eu", "eu-central-1", endpoint=server.endpoint))
        now = int(server.now() * 1000)
        mark = Bookmark(sequence, arrived=now - 1000, digest=digest_of(b"key", b"{}"), seen_at=now)
        table, topic_id = TableByHand(lake), source.topic("orders").topic_id
        table.ledger_commit("drain", at={TP: 1}, bookmarks={TP: mark}, topic_id=topic_id)

    def put(self) -> str:
        """The sequence number of another record."""
        return str(self.client.put_record(StreamName="orders", Data=b"{}", PartitionKey="key")["SequenceNumber"])


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: str) -> Iterator[Drained]:
    server = start_kinesis(clock=ServerClock(frozen=True))
    monkeypatch.setattr("time.sleep", lambda seconds: server.advance(seconds + 0.05))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield Drained(server, tmp_path / "defs", lake)
    server.stop()


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


def test_a_plan_says_since_when_records_wait(kdi: Kdi, orders: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing to drain" in kdi("plan", "orders").out

    monkeypatch.setattr(LazySession, "__call__", lambda session: None)
    monkeypatch.setattr("kdi_assets.streams.drain.takeover.refuse_unsuitable", lambda *_: None)
    orders.put()
    orders.server.advance(2)
    plan, (fields,) = kdi("plan", "orders"), kdi("plan", "orders", "--json").objects

    assert "would drain what follows the positions" in plan.out
    assert "orders/0" in plan.out and "nothing" not in plan.out
    assert (fields["step"], fields["backlog_offsets"]) == ("drain", None)
    assert fields["waiting_since"]


def test_before_the_first_drain_status_plan_and_doctor_say_since_when_records_wait(
    kdi: Kdi, orders: Drained, lake: str
) -> None:
    shutil.rmtree(Path(lake) / "bronze")
    orders.server.advance(3600)

    (row,) = kdi("status", "orders", "--json").objects
    status, plan = kdi("status", "orders"), kdi("plan", "orders")
    (fields,) = kdi("plan", "orders", "--json").objects
    found = {(one["examination"], one["of"]): one for one in kdi("doctor", "orders", "--json").objects}

    assert (row["backlog_offsets"], row["needs_position_commit"], row["next_command"]) == (
        1,
        True,
        "kdi drain bronze/orders",
    )
    assert row["lag_seconds"] is not None
    assert row["time_to_loss_seconds"] is None, "what retention removes before a start is not lost"
    assert "1 shard" in status.out
    assert "FIRST RECORD ARRIVED" in plan.out
    assert (fields["step"], fields["backlog_offsets"]) == ("position_commit", None)
    assert fields["waiting_since"]
    assert found["stream", "bronze/orders"]["found"].startswith("records wait on 1 shard")
    assert found["retention", "bronze/orders"]["verdict"] == "ok"


def test_a_status_that_did_not_reach_the_end_of_a_shard_says_so(
    kdi: Kdi, orders: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", orders.server.now)
    orders.server.behaviour.empty_pages = 250

    status, (row,) = kdi("status", "orders"), kdi("status", "orders", "--json").objects

    assert (row["state"], row["behind"], row["topic_partitions"]["orders/0"]["backlog_offsets"]) == (
        "unknown",
        None,
        None,
    )
    assert "not every shard was looked at to its end yet; kdi status bronze/orders --watch goes on" in status.out


def test_a_status_of_a_stream_that_does_not_answer_says_so_and_does_not_count(kdi: Kdi, orders: Drained) -> None:
    orders.put()
    orders.server.order(Fault("GetRecords", code="ExpiredTokenException", times=1000))

    status, (row,) = kdi("status", "orders"), kdi("status", "orders", "--json").objects
    orders.server.unmet_faults()

    assert (row["state"], row["behind"], row["waiting_seconds"]) == ("unreachable", None, None)
    assert "Kinesis (eu) does not answer now" in status.out
    assert "was looked at to its end" not in status.out


def test_a_status_knows_how_long_records_wait_and_not_how_many(orders: Drained, lake: str) -> None:
    orders.put()
    orders.server.advance(2)

    (row,) = stream_row_reader([orders.stream], lake)()

    assert (row.state, row.behind, row.next_command) == (State.OK, 1, "kdi drain bronze/orders")
    assert row.waiting_seconds is not None
    assert row.backlog.time_to_loss_seconds is not None
    assert (row.backlog.bytes, row.backlog.arrival_rate, row.backlog.time_to_close_seconds) == (None, None, None)


def test_the_doctor_looks_at_streams_of_kinesis(kdi: Kdi, orders: Drained) -> None:
    found = {(one["examination"], one["of"]): one for one in kdi("doctor", "orders", "--json").objects}

    assert found["stream", "bronze/orders"]["verdict"] == "ok"
    assert found["retention", "bronze/orders"]["found"].startswith("kept for 1 d")
    assert found["jars", "kinesis"]["verdict"] == "wrong"
    assert "kdi jars --kinesis" in str(found["jars", "kinesis"])


def test_the_doctor_names_the_jars_of_kinesis_once(
    kdi: Kdi, orders: Drained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "jars" / "kinesis").mkdir(parents=True)
    monkeypatch.setattr("kdi_assets.operate.doctor.machine.refuse_unlocked", lambda *_, **options: 6)

    rows = [one["of"] for one in kdi("doctor", "orders", "--json").objects if one["examination"] == "jars"]

    assert rows.count("kinesis") == 1


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL"])
def test_a_status_begins_with_the_address_that_the_environment_gives_instead_of_the_regions(
    kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    document(tmp_path / "defs", endpoint="")
    monkeypatch.setenv(variable, "http://127.0.0.1:1")

    answer = kdi("status")

    assert f"kinesis    http://127.0.0.1:1 (eu: {variable})" in answer.err


def test_a_doctor_of_a_table_says_why_its_document_is_not_loaded(kdi: Kdi, tmp_path: Path) -> None:
    document(tmp_path / "defs")
    (tmp_path / "defs" / "orders" / "defs.yaml").rename(tmp_path / "defs" / "orders.yaml")

    answer = kdi("doctor", "orders")

    assert answer.code == 1
    assert "orders.yaml:1 document: nothing loads this file" in answer.err


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
