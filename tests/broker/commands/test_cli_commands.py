"""The commands over a real broker, real Spark and a real table, as a person types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
from tests.broker.commands.conftest import DOCUMENT, GOOD, publish
from tests.conftest import DrivenFactory, also_on_s3
from tests.documents import refined, written
from tests.driven import DrivenStream
from tests.faults.topics import delete_records
from tests.typed import Kdi


@also_on_s3
def test_plan_says_what_the_drain_does_next_and_does_nothing_itself(kdi: Kdi, orders: DrivenStream) -> None:
    publish(orders, good=10, bad=2)

    before, [first] = kdi("plan", "orders"), kdi("plan", "orders", "--json").objects
    assert TableLog.open(orders.uri) is None
    kdi("drain", "orders")
    publish(orders, good=6)
    text, [second] = kdi("plan", "orders").out, kdi("plan", "orders", "--json").objects
    kdi("drain", "orders")

    start, drained, again = orders.entries()
    assert before.code == 0
    assert "would commit positions first: the table does not exist; start: earliest" in before.out
    assert (first["position_commit"], first["backlog_offsets"], drained.messages) == (start.kind, 12, 12)
    assert first["positions"] == {str(tp): at for tp, at in start.positions.items()}
    assert second["step"] == "drain"
    assert [(r["topic_partition"], r["start"], r["end"]) for r in second["ranges"]] == [
        (str(r.range.topic_partition), r.range.start, r.range.end) for r in again.ranges
    ]
    assert "would drain 6 offsets, directly after v1" in text
    assert "nothing to drain; v2 has every offset" in kdi("plan", "orders").out


@also_on_s3
@pytest.mark.core
def test_drain_and_status_tell_what_was_drained(kdi: Kdi, orders: DrivenStream) -> None:
    publish(orders, good=10, bad=3)
    [waiting] = kdi("status", "--json").objects

    text = kdi("drain", "orders")
    publish(orders, good=2)
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


def test_spark_is_started_for_the_backlog_alone_if_the_command_ends_after_it(
    kdi: Kdi, orders: DrivenStream, defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int | None] = []

    def opened(*settings: Any, only_messages: int | None = None, **options: Any) -> SparkSession:
        started.append(only_messages)
        return open_session(*settings, **options)

    monkeypatch.setattr("kdi_assets.runtime.spark.open_session", opened)
    publish(orders, good=10, bad=2)
    kdi("drain", "orders")
    publish(orders, good=4)
    written(defs, copies=DOCUMENT.format(topic=orders.stream.topic, table="copies"))
    kdi("drain", "--all")

    assert started == [12, None]


def test_a_drain_of_too_many_dead_letters_stops_until_a_person_takes_them(
    kdi: Kdi, orders: DrivenStream, defs: Path
) -> None:
    said = DOCUMENT.format(topic=orders.stream.topic, table="orders")
    written(defs, orders=said.replace("date: at}", "date: at, dead_letter_limit: {share: 0.5, count: 5}}"))
    publish(orders, good=2, bad=7)

    refused = kdi("drain", "orders", "--json")
    everywhere = kdi("drain", "--all", "--accept-dead-letters")
    taken = kdi("drain", "orders", "--accept-dead-letters")

    error = refused.objects[0]["error"]
    assert (refused.code, error["type"], error["reasons"]) == (1, "TooManyDeadLetters", [["wrong_type", "id", 7]])
    assert (everywhere.code, "name the streams" in everywhere.err) == (2, True)
    assert (taken.code, "2 rows, 7 dead letters" in taken.out) == (0, True)


def test_a_refused_stream_does_not_stop_the_others(kdi: Kdi, orders: DrivenStream, defs: Path) -> None:
    written(defs, absent=DOCUMENT.format(topic="there-is-no-such-topic", table="absent"))
    publish(orders, good=4)

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
    assert "Run:  the same command again   (first correct `topic:`" in status.out


@also_on_s3
def test_audit_names_what_is_gone_takes_bounds_and_compares_and_upkeep_copies_what_it_cleans(
    kdi: Kdi, orders: DrivenStream
) -> None:
    publish(orders, good=10, bad=1)
    kdi("drain", "orders")

    complete = kdi("audit", "orders")
    part = kdi("audit", "orders", "--partition", "1", "--from", "1", "--to", "4", "--json")
    beyond = kdi("audit", "orders", "--partition", "1", "--from", "5")
    compared = kdi("audit", "orders", "--against-kafka")
    shown, done = kdi("upkeep", "orders"), kdi("upkeep", "orders", "--yes", "--json")
    rows = DeltaTable(orders.uri).to_pyarrow_table()
    gone = {"partition": 1, "offset": 3}
    kept = [not at.items() >= gone.items() for at in rows["kafka"].to_pylist()]
    write_deltalake(orders.uri, rows.filter(kept), mode="overwrite")
    broken = kdi("audit", "orders", "--json")

    assert (complete.code, "11 offsets = 10 rows + 1 dead letters" in complete.out) == (0, True)
    assert (part.code, part.objects[0]["offsets"], part.objects[0]["rows"]) == (0, 3, 3)
    assert (beyond.code, "no offset of" in beyond.err) == (2, True)
    assert "still holds 11 messages" in compared.out and "; 11 agree" in compared.out
    assert "0 commits of 2 in the log are older than 30 d" in shown.out
    assert (done.objects[0]["copied_commits"], done.objects[0]["removed_commits"]) == (2, 0)
    assert (broken.code, broken.objects[0]["complete"]) == (1, False)
    [hole] = broken.objects[0]["holes"]
    assert (hole["topic_partition"], hole["start"], hole["end"]) == (str(orders.tp(1)), 3, 4)
    assert (hole["version"], hole["taken_by_version"], hole["taken_by_operation"]) == (1, 2, "WRITE")


def test_an_erasure_is_shown_first_done_with_yes_and_told_by_history_and_audit(
    kdi: Kdi, orders: DrivenStream, defs: Path
) -> None:
    publish(orders, good=10, bad=1)
    written(defs, silver=refined("silver/orders", upstream=orders.stream.table))
    kdi("drain", "orders")
    which = ("erase", "orders", "--where", "id < 3", "--dead-letters-where", "true")

    shown, untouched = kdi(*which), orders.version()
    done = kdi(*which, "--because", "asked", "--yes", "--json")
    of_bronze = orders.stream.table  # "orders" alone may be either table
    history, audit = kdi("history", of_bronze, "--count", "1"), kdi("audit", of_bronze, "--json")

    assert shown.code == 0 and "would erase 6 rows of 6 messages, 1 dead letter" in shown.out
    assert "then brought up to date: silver/orders\nNothing was changed" in shown.out
    [told] = done.objects
    assert (told["rows"], told["dead_letters"], told["done"], told["error"]) == (6, 1, True, None)
    assert told["table_version"] == untouched + 1
    [made_of_it] = told["downstream"]
    assert (made_of_it["table"], made_of_it["rows_left"], made_of_it["error"]) == ("silver/orders", 0, None)
    assert '6 rows, 1 dead letters of 7 messages: (id < ?) or dead letters: true ("asked" by' in history.out
    assert (audit.objects[0]["complete"], audit.objects[0]["erased"], audit.objects[0]["rows"]) == (True, 7, 4)


@also_on_s3
def test_peek_shows_rows_and_reasons_of_what_waits_or_of_the_newest(kdi: Kdi, orders: DrivenStream) -> None:
    values = [GOOD.format(id=7, day=1), None, '{"id": "seven"}', "\x1b[31m", GOOD.format(id=8, day=1)]
    orders.send(*values, partition=1)

    [told] = kdi("peek", "orders", "--count", "4", "--json").objects
    text = kdi("peek", "orders", "--topic-partition", "1", "--offset", "3", "--count", "1")

    row, tombstone, letter, steering = told["messages"]
    assert told["which"] == "next"
    assert (row["topic_partition"], row["offset"], row["verdict"]) == (str(orders.tp(1)), 0, "row")
    assert (row["row"]["id"], row["row"]["date"], row["row"]["kafka"]["offset"]) == (7, "2026-03-01", 0)
    assert (tombstone["offset"], tombstone["verdict"], tombstone["row"]) == (1, "tombstone", None)
    assert (letter["reason"], letter["field"], letter["value"]) == ("wrong_type", "id", '{"id": "seven"}')
    assert steering["reason"] == "malformed_json"
    assert "offset 3" in text.out
    assert r"\x1b[31m" in text.out
    assert "\x1b" not in text.out
    assert TableLog.open(orders.uri) is None

    publish(orders, good=20)
    [told] = kdi("peek", "orders", "--last", "--count", "2", "--json").objects
    assert (told["which"], [(m["topic_partition"][-1], m["offset"]) for m in told["messages"]]) == (
        "newest",
        [("0", 9), ("1", 14)],
    )
    kdi("drain", "orders")
    [told] = kdi("peek", "orders", "--count", "4", "--json").objects
    newest = [("0", 8), ("0", 9), ("1", 13), ("1", 14)]
    assert (told["which"], [(m["topic_partition"][-1], m["offset"]) for m in told["messages"]]) == ("newest", newest)


def test_peek_names_a_message_whose_timestamp_spark_cannot_read(kdi: Kdi, driven: DrivenFactory, defs: Path) -> None:
    """Procedure: nanoseconds in place of milliseconds."""
    topic = driven(partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    written(defs, orders=DOCUMENT.format(topic=topic.stream.topic, table="orders"))
    topic.send(GOOD.format(id=1, day=1))
    topic.publisher.client.produce(topic.stream.topic, b"{}", partition=0, timestamp=1_700_000_000_000_000_000)
    topic.publisher.flush()

    refused = kdi("peek", "orders")

    assert refused.code == 1
    assert f"accept-loss --topic-partition {topic.tp()} --from 1 --until 2" in refused.err


@also_on_s3
def test_a_loss_is_shown_first_and_accepted_with_yes(kdi: Kdi, orders: DrivenStream) -> None:
    publish(orders, good=4)
    kdi("drain", "orders")
    publish(orders, good=20)
    delete_records(orders, {0: 7})
    refused = kdi("drain", "orders")
    [run] = [line for line in refused.err.splitlines() if line.startswith("  Run:")]
    command = run.split("kdi ")[1].split("   (")[0]

    shown = kdi(*command.split())
    assert TableLog.existing(orders.uri).version == 1
    [done] = kdi(*command.split(), "--yes", "--json").objects
    drained = kdi("drain", "orders")

    assert refused.code == 1
    assert shown.code == 0
    lost = OffsetRange(orders.tp(), 2, 7)
    assert f"declared loss: {lost}, 5 offsets" in shown.out
    assert "Nothing was changed" in shown.out
    assert (done["done"], done["table_version"]) == (True, 2)
    assert orders.entries()[-2].declared_losses == (lost,)
    assert drained.code == 0
    assert "5 declared losses; none missing" in kdi("audit", "orders").out


def test_changed_route_conditions_are_refused_shown_and_accepted_for_all_tables_with_a_reason(
    kdi: Kdi, orders: DrivenStream, defs: Path
) -> None:
    """Pass: `drain`, `plan` and `status` refuse alike; tables at different offsets are refused, with the way to bring
    them together; the ledger has what was accepted, with its reason.
    """

    def say(when: str) -> None:
        for table, route in (("orders", f"{{when: {when}}}"), ("others", "{rest: rows}")):
            said = DOCUMENT.format(topic=orders.stream.topic, table=table)
            written(defs, **{table: said.replace("}\n", f", route: {route}}}\n")})

    accept = ("resolve", "orders", "accept-routes", "--because", "payments have a table of their own")
    say("id < 3")
    publish(orders, good=10)
    assert kdi("drain", "orders").code == 0
    assert kdi("drain", "others").code == 0
    publish(orders, good=10)
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
    again = kdi(*accept)

    assert (refused.code, planned["error"]["type"]) == (1, "RoutesChanged")
    assert "kdi resolve bronze/orders accept-routes --because" in refused.err
    assert state == dict.fromkeys(("bronze/orders", "bronze/others"), ("refused", "RoutesChanged"))
    assert apart.code == 1
    assert "(bronze/orders: `route.when` `id < 3`); kdi drain bronze/orders bronze/others" in apart.err
    assert "Nothing was changed" in shown.out
    assert [one["stream"] for one in accepted.objects if one["done"]] == ["bronze/orders", "bronze/others"]
    entry = orders.entries()[-1]
    assert (entry.kind, entry.because) == ("routes", "payments have a table of their own")
    assert entry.decided_by
    assert entry.routes is not None and entry.routes.since == entry.positions
    assert (again.code, "all tables of its route group have the route conditions" in again.err) == (1, True)


def test_a_silent_broker_is_worth_a_retry(kdi: Kdi, orders: DrivenStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")

    answer = kdi("status", "--json")

    [told] = answer.objects
    assert (answer.code, told["state"], told["backlog_offsets"]) == (75, "unreachable", None)
    assert (told["error"]["type"], told["error"]["retry_helps"]) == ("BrokerUnreachable", True)


@also_on_s3
def test_plan_status_and_an_audit_that_finds_nothing_load_no_spark(environment: Settings, orders: DrivenStream) -> None:
    script = (
        "import sys; from kdi_assets.cli.app import app_for; app_for(())(sys.argv[1:], standalone_mode=False);"
        " print([m for m in ('dagster', 'pandas', 'pyspark') if m in sys.modules], file=sys.stderr)"
    )

    def alone(*command: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True, timeout=60
        )
        assert run.stderr.splitlines()[-1] == "[]"
        return run.stdout

    publish(orders, good=2)
    before = alone("plan", "orders"), alone("status")
    orders.drain()
    audited = alone("audit", "orders")

    assert all("bronze/orders" in answer for answer in before)
    assert audited.startswith("audit of bronze/orders") and "none missing" in audited


def test_ctrl_c_ends_with_130_and_leaves_neither_a_jvm_nor_half_a_table(
    environment: Settings, orders: DrivenStream
) -> None:
    """If PySpark is interrupted while it starts a JVM, it forgets the JVM; the command must not."""
    publish(orders, good=10)
    script = "from kdi_assets.cli.main import main; main()"
    command = [sys.executable, "-c", script, "drain", "orders"]
    kdi = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert kdi.stderr is not None and any("starting Spark" in line for line in kdi.stderr)

    jvm = await_child(kdi.pid, "SparkSubmit")
    os.killpg(kdi.pid, signal.SIGINT)
    out, err = kdi.communicate(timeout=60)

    assert kdi.returncode == 130
    assert psutil.wait_procs([jvm], timeout=30)[1] == []
    assert out == ""
    assert "interrupted (starting Spark): nothing was committed; the same command begins again" in err
    assert "Traceback" not in err
    assert TableLog.open(orders.uri) is None


def await_child(pid: int, word: str) -> psutil.Process:
    """The child with the word in its command line, as soon as it exists; an error if the process ends first."""
    while True:
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(word in part for part in child.cmdline()):
                    return child
