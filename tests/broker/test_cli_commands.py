"""The commands over a real broker, real Spark and a real table, as a person types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.runtime.broker import Broker
from kdi_assets.settings import Settings
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.conftest import TopicFactory
from tests.kafka_log import Publisher
from tests.typed import Kdi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {topic}, table: bronze/{table}, app_id: {table}, schema: "id bigint, at date", date: at}}
"""
GOOD = '{{"id": {id}, "at": "2026-03-{day:02}"}}'


@dataclass(frozen=True)
class Orders:
    """A stream, by the name of its table."""

    topic: str
    lake: str

    @property
    def uri(self) -> str:
        """Its table."""
        return f"{self.lake}/bronze/orders"

    def range(self, partition: int, start: int, end: int) -> OffsetRange:
        """Offsets of its topic."""
        return OffsetRange(TopicPartition(self.topic, partition), start, end)


def document(defs: Path, *, table: str, topic: str) -> None:
    folder = defs / table
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(DOCUMENT.format(topic=topic, table=table))


@pytest.fixture
def orders(topic: TopicFactory, defs: Path, lake: str) -> Orders:
    """The stream bronze/orders, over a topic with two topic partitions."""
    name = topic(2)
    document(defs, table="orders", topic=name)
    return Orders(name, lake)


def publish(producer: Publisher, orders: Orders, *, good: int = 10, bad: int = 0) -> None:
    """Half of the good messages into each topic partition, two dates; the bad ones into the first."""
    for partition in (0, 1):
        values = [GOOD.format(id=i, day=1 + i % 2) for i in range(good // 2)]
        producer.produce_all(orders.topic, values, partition=partition)
    producer.produce_all(orders.topic, ['{"id": "seven", "at": "2026-03-01"}'] * bad, partition=0)


def test_plan_says_what_the_drain_does_first_and_does_nothing_itself(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    publish(producer, orders, good=10, bad=2)

    before = kdi("plan", "orders")
    [planned] = kdi("plan", "orders", "--json").objects
    assert TableLog.open(orders.uri) is None
    kdi("drain", "orders")
    settled, drained = entries(orders.uri, "orders")

    assert before.code == 0
    assert "would commit positions first: the table does not exist; start: earliest" in before.out
    assert planned["settlement"] == settled.kind
    assert planned["positions"] == {str(tp): at for tp, at in settled.positions.items()}
    assert planned["backlog_offsets"] == sum(r.range.offset_count for r in drained.ranges)


def test_plan_names_the_ranges_that_the_drain_then_reads(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    publish(producer, orders, good=4)
    kdi("drain", "orders")
    publish(producer, orders, good=6)

    [planned] = kdi("plan", "orders", "--json").objects
    text = kdi("plan", "orders").out
    kdi("drain", "orders")

    ranges = [r.range for r in entries(orders.uri, "orders")[-1].ranges]
    assert planned["step"] == "drain"
    assert [(r["topic_partition"], r["start"], r["end"]) for r in planned["ranges"]] == [
        (str(r.topic_partition), r.start, r.end) for r in ranges
    ]
    assert "would drain 6 offsets, directly behind v1" in text
    assert "nothing to drain; v2 has it all" in kdi("plan", "orders").out


@pytest.mark.core
def test_drain_and_status_tell_what_was_drained(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    publish(producer, orders, good=10, bad=3)
    [waiting] = kdi("status", "--json").objects

    text = kdi("drain", "orders")
    publish(producer, orders, good=2)
    [again] = kdi("drain", "--all", "--json").objects
    [drained] = kdi("status", "--json").objects

    assert (waiting["state"], waiting["backlog_offsets"], waiting["table_version"]) == ("OK", 13, None)
    assert waiting["lag_seconds"] > 0
    assert text.code == 0
    assert re.search(r"bronze/orders: 10 rows, 3 dead letters, v1, [\d.]+ s\n  2026-03-01  6\n", text.out)
    assert "committed v1: 10 rows" in text.err
    assert (again["rows_added"], again["dead_letters"], again["versions"]) == (2, 0, [2])
    assert again["rows_by_date"] == {"2026-03-01": 2}
    assert (drained["state"], drained["backlog_offsets"], drained["table_version"]) == ("OK", 0, 2)
    assert drained["dead_letters_24h"] == 3
    assert drained["lag_seconds"] is None


def test_a_drain_of_too_many_dead_letters_stops_until_a_person_takes_them(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession, defs: Path
) -> None:
    written = defs / "orders" / "defs.yaml"
    written.write_text(written.read_text().replace("date: at}", "date: at, dead_letter_limit: {share: 0.5, count: 5}}"))
    publish(producer, orders, good=2, bad=7)

    refused = kdi("drain", "orders", "--json")
    everywhere = kdi("drain", "--all", "--accept-dead-letters")
    taken = kdi("drain", "orders", "--accept-dead-letters")

    error = refused.objects[0]["error"]
    assert (refused.code, error["type"], error["reasons"]) == (1, "TooManyDeadLetters", [["wrong_type", "id", 7]])
    assert (everywhere.code, "name the streams" in everywhere.err) == (2, True)
    assert (taken.code, "2 rows, 7 dead letters" in taken.out) == (0, True)


def test_a_refused_stream_does_not_stop_the_others(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession, defs: Path
) -> None:
    document(defs, table="absent", topic="there-is-no-such-topic")
    publish(producer, orders, good=4)

    answer = kdi("drain", "--all", "--json")
    status = kdi("status")

    absent, drained = answer.objects
    assert answer.code == 1
    assert absent["error"]["type"] == "TopicMissing"
    assert absent["error"]["retry_helps"] is False
    assert (drained["stream"], drained["rows_added"], drained["error"]) == ("bronze/orders", 4, None)
    assert "has no topic 'there-is-no-such-topic'" in answer.err
    assert status.code == 0
    assert re.search(r"bronze/absent +\? +\? +\? +\? +- +- +- +refused\n", status.out)
    assert "Run:  create the topic" in status.out


def test_audit_ends_with_1_when_a_row_is_gone_and_names_its_offset(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    publish(producer, orders, good=10, bad=1)
    kdi("drain", "orders")
    complete = kdi("audit", "orders")

    table = spark.read.format("delta").load(orders.uri)
    kept = table.where("NOT (kafka.partition = 1 AND kafka.offset = 3)")
    kept.write.format("delta").mode("overwrite").save(orders.uri)
    broken = kdi("audit", "orders", "--json")

    assert complete.code == 0
    assert "11 offsets = 10 rows + 1 dead letters" in complete.out
    assert broken.code == 1
    assert broken.objects[0]["complete"] is False
    [hole] = broken.objects[0]["holes"]
    assert (hole["topic_partition"], hole["start"], hole["end"]) == (f"{orders.topic}/1", 3, 4)
    assert (hole["version"], hole["taken_by_version"], hole["taken_by_operation"]) == (1, 2, "WRITE")


def test_audit_and_upkeep_take_bounds_and_compare_and_copy_before_they_clean(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    publish(producer, orders, good=10, bad=1)
    kdi("drain", "orders")

    part = kdi("audit", "orders", "--partition", "1", "--from", "1", "--to", "4", "--json")
    beyond = kdi("audit", "orders", "--partition", "1", "--from", "5")
    compared = kdi("audit", "orders", "--against-kafka")
    shown, done = kdi("upkeep", "orders"), kdi("upkeep", "orders", "--yes", "--json")

    assert (part.code, part.objects[0]["offsets"], part.objects[0]["rows"]) == (0, 3, 3)
    assert (beyond.code, "nothing of" in beyond.err) == (2, True)
    assert "still holds 11 messages" in compared.out and "; 11 agree" in compared.out
    assert "0 commits of 2 in the log are older than 30 d" in shown.out
    assert (done.objects[0]["copied_commits"], done.objects[0]["removed_commits"]) == (2, 0)


def test_peek_shows_rows_and_reasons_and_moves_nothing(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    values = [GOOD.format(id=7, day=1), None, '{"id": "seven"}', "\x1b[31m", GOOD.format(id=8, day=1)]
    producer.produce_all(orders.topic, values, partition=1)

    [told] = kdi("peek", "orders", "--count", "4", "--json").objects
    text = kdi("peek", "orders", "--topic-partition", "1", "--offset", "3", "--count", "1")

    row, tombstone, letter, steering = told["messages"]
    assert told["which"] == "next"
    assert (row["topic_partition"], row["offset"], row["verdict"]) == (f"{orders.topic}/1", 0, "row")
    assert (row["row"]["id"], row["row"]["date"], row["row"]["kafka"]["offset"]) == (7, "2026-03-01", 0)
    assert (tombstone["offset"], tombstone["verdict"], tombstone["row"]) == (1, "tombstone", None)
    assert (letter["reason"], letter["field"], letter["value"]) == ("wrong_type", "id", '{"id": "seven"}')
    assert steering["reason"] == "malformed_json"
    assert "offset 3" in text.out
    assert r"\x1b[31m" in text.out
    assert "\x1b" not in text.out
    assert TableLog.open(orders.uri) is None


def test_peek_shows_the_newest_messages_when_none_is_waiting(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession
) -> None:
    publish(producer, orders, good=20)
    kdi("drain", "orders")

    [told] = kdi("peek", "orders", "--count", "4", "--json").objects

    assert told["which"] == "newest"
    assert [(m["topic_partition"][-1], m["offset"]) for m in told["messages"]] == [
        ("0", 8), ("0", 9), ("1", 8), ("1", 9)
    ]  # fmt: skip


@pytest.mark.core
def test_a_loss_is_shown_first_and_accepted_with_yes(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession, broker: Broker
) -> None:
    publish(producer, orders, good=4)
    kdi("drain", "orders")
    publish(producer, orders, good=20)
    delete_before(broker, orders.topic, 0, 7)
    refused = kdi("drain", "orders")
    command = next(line.split("kdi ")[1] for line in refused.err.splitlines() if line.startswith("  Run:"))

    shown = kdi(*command.split())
    assert TableLog.existing(orders.uri).version == 1
    [done] = kdi(*command.split(), "--yes", "--json").objects
    drained = kdi("drain", "orders")

    assert refused.code == 1
    assert shown.code == 0
    assert f"declared loss: {orders.range(0, 2, 7)}, 5 offsets" in shown.out
    assert "Nothing was changed" in shown.out
    assert (done["done"], done["table_version"]) == (True, 2)
    assert entries(orders.uri, "orders")[-2].declared_losses == (orders.range(0, 2, 7),)
    assert drained.code == 0
    assert "5 declared losses; none missing" in kdi("audit", "orders").out


def test_changed_route_conditions_are_refused_shown_and_accepted_for_all_tables_with_a_reason(
    kdi: Kdi, orders: Orders, producer: Publisher, spark: SparkSession, defs: Path
) -> None:
    """Pass: the refusal is that of `drain`, `plan` and `status`; tables that stand apart are refused with the way to
    bring them together; what was accepted is in both ledgers, and holds."""

    def say(when: str) -> None:
        for table, route in (("orders", f"{{when: {when}}}"), ("others", "{rest: rows}")):
            said = DOCUMENT.format(topic=orders.topic, table=table).replace("}\n", f", route: {route}}}\n")
            (defs / table).mkdir(exist_ok=True)
            (defs / table / "defs.yaml").write_text(said)

    accept = ("resolve", "orders", "accept-routes", "--because", "payments have a table of their own")
    say("id < 3")
    publish(producer, orders, good=10)
    assert kdi("drain", "orders").code == 0
    assert kdi("drain", "others").code == 0
    publish(producer, orders, good=10)
    assert kdi("drain", "orders").code == 0
    say("id < 2")

    refused = kdi("drain", "--all")
    [planned] = kdi("plan", "orders", "--json").objects
    state = {one["stream"]: (one["state"], one["error"]["type"]) for one in kdi("status", "--json").objects}
    apart = kdi(*accept)
    say("id < 3")
    assert kdi("drain", "--all").code == 0
    say("id < 2")
    shown = kdi(*accept)
    accepted = kdi(*accept, "--yes", "--json")
    publish(producer, orders, good=10)
    drained = kdi("drain", "--all", "--json")
    again = kdi(*accept)

    assert (refused.code, planned["error"]["type"]) == (1, "RoutesChanged")
    assert "kdi resolve bronze/orders accept-routes --because" in refused.err
    assert state == dict.fromkeys(("bronze/orders", "bronze/others"), ("refused", "RoutesChanged"))
    assert apart.code == 1
    assert "(bronze/orders: `route.when` `id < 3`); kdi drain bronze/orders bronze/others" in apart.err
    assert "Nothing was changed" in shown.out
    assert [(one["stream"], one["done"]) for one in accepted.objects] == [
        ("bronze/orders", True),
        ("bronze/others", True),
    ]
    entry = entries(orders.uri, "orders")[-2]
    assert (entry.kind, entry.because) == ("routes", "payments have a table of their own")
    assert entry.decided_by
    assert entry.routes is not None
    assert entry.routes.since == entry.positions
    assert drained.code == 0
    assert [one["rows_added"] for one in drained.objects] == [4, 6]
    assert again.code == 1
    assert "all tables of its route group have the route conditions" in again.err


def test_a_silent_broker_is_worth_a_retry(kdi: Kdi, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")

    answer = kdi("status", "--json")

    assert answer.code == 75
    assert answer.objects[0]["state"] == "unreachable"
    assert answer.objects[0]["backlog_offsets"] is None
    assert answer.objects[0]["error"]["type"] == "BrokerUnreachable"
    assert answer.objects[0]["error"]["retry_helps"] is True


def test_plan_and_status_load_no_spark(environment: Settings, orders: Orders, producer: Publisher) -> None:
    publish(producer, orders, good=2)
    script = (
        "import sys; from kdi_assets.cli.main import app; app(sys.argv[1:], standalone_mode=False);"
        " print([m for m in ('dagster', 'pandas', 'pyspark') if m in sys.modules], file=sys.stderr)"
    )

    for command in (["plan", "orders"], ["status"]):
        run = subprocess.run(
            [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True, timeout=60
        )
        assert run.stderr == "[]\n"
        assert "bronze/orders" in run.stdout


def test_ctrl_c_ends_with_130_and_leaves_neither_a_jvm_nor_half_a_table(
    environment: Settings, orders: Orders, producer: Publisher
) -> None:
    """PySpark forgets a JVM that it is interrupted in starting; the command must not."""
    publish(producer, orders, good=10)
    script = "from kdi_assets.cli.main import main; main()"
    command = [sys.executable, "-c", script, "drain", "orders"]
    kdi = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert kdi.stderr is not None

    await_line(kdi, "starting Spark")
    jvm = await_child(kdi.pid, "SparkSubmit")
    os.killpg(kdi.pid, signal.SIGINT)
    out, err = kdi.communicate(timeout=60)

    assert kdi.returncode == 130
    assert psutil.wait_procs([jvm], timeout=30)[1] == []
    assert out == ""
    assert "interrupted: commits reported so far stand" in err
    assert "Traceback" not in err
    assert TableLog.open(orders.uri) is None


def await_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        if text in line:
            return
        seen.append(line)
    raise AssertionError(f"ended without saying {text!r}: {''.join(seen)}")


def await_child(pid: int, word: str) -> psutil.Process:
    """The child with the word in its command line, as soon as it is there; if the process ends first, an error."""
    while True:
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(word in part for part in child.cmdline()):
                    return child


def delete_before(broker: Broker, topic: str, partition: int, offset: int) -> None:
    """What retention does: the topic partition then begins at ``offset``."""
    from confluent_kafka import TopicPartition as RdPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
    for deleted in admin.delete_records([RdPartition(topic, partition, offset)]).values():
        deleted.result(30)
