"""Tables of kafka-delta-ingest as they are: text for the date, its own order of fields, three or four coordinates."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.limits import CheckName
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.streams.drain.snapshot import take_snapshot
from kdi_assets.streams.ledger.errors import RowsWithoutDate
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.rules.errors import SchemaDisagrees
from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import DrivenStream, web_requests_document
from tests.faults.topics import make_again
from tests.kafka_log import Produced
from tests.oracle import WEB_REQUESTS, Reading, web_request
from tests.predecessor.table import COORDINATES, MICROS, PredecessorTable
from tests.typed import Kdi

FOUR = {**COORDINATES, "timestamp": MICROS}
REORDERED = {"timestamp": MICROS, "partition": pa.int32(), "topic": pa.string(), "offset": pa.int64()}
CHECKED: tuple[CheckName, ...] = (
    "no_duplicate_coordinates",
    "dates_in_window",
    "schema_as_declared",
    "every_offset_accounted_for",
)
TODAY = datetime.now(UTC).date()
TRANSFORMS = (
    "date: substr(meta.producer.timestamp, `0`, `10`)",
    *(f"meta.kafka.{name}: kafka.{name}" for name in ("offset", "partition", "topic")),
)
README = r"""export AWS_ENDPOINT_URL=http://0.0.0.0:4566
export AWS_ACCESS_KEY_ID=test
export AWS_SECRET_ACCESS_KEY=hunter2

RUST_LOG=debug cargo run ingest {topic} {table} \
  -k {kafka} \
  --allowed_latency 60 \
  --app_id web_requests \
  --transform 'date: substr(meta.producer.timestamp, `0`, `10`)' \
  --transform 'meta.kafka.offset: kafka.offset' \
  --transform 'meta.kafka.partition: kafka.partition' \
  --transform 'meta.kafka.topic: kafka.topic' \
  --auto_offset_reset earliest
"""


def with_text_dates(message: Produced) -> dict[str, Any]:
    """The row of a web request in such a table."""
    wanted = dict(web_request(message))
    wanted.pop("host")
    return {**wanted, "date": wanted["date"].isoformat()}


READING = Reading(with_text_dates, WEB_REQUESTS.is_good)


def taken_over(
    driven: DrivenFactory,
    coordinates: Mapping[str, pa.DataType],
    *,
    app_id: str = "kdi",
    partitioned_by: tuple[str, ...] = ("date",),
    checkpointed: bool = False,
    date_length: int = 10,
) -> tuple[DrivenStream, PredecessorTable]:
    """A stream whose table the other writer filled in two commits, with 30 of its 60 messages over two partitions."""
    web = driven(partitions=2, app_id=app_id, columns={})
    table = PredecessorTable(
        web.uri, app_id=app_id, coordinates=coordinates, partitioned_by=partitioned_by, date_length=date_length
    )
    table.create()
    of_table = sorted(web.produce(30), key=lambda message: message.offset)
    table.ingest(1, of_table[:18])
    table.ingest(2, of_table[18:])
    if checkpointed:
        table.checkpoint()
    web.produce(30, seed=1)
    return web, table


@pytest.mark.parametrize(
    ("coordinates", "checkpointed", "partitioned_by"),
    [
        pytest.param(COORDINATES, False, ("date",), id="three coordinates", marks=pytest.mark.core),
        pytest.param(FOUR, True, ("date",), id="four coordinates, checkpointed"),
        pytest.param({**COORDINATES, "partition": pa.int64()}, True, ("date", "method"), id="by method, checkpointed"),
        pytest.param({**COORDINATES, "timestamp": pa.int64()}, False, ("date",), id="microseconds"),
    ],
)
def test_its_table_is_continued_in_its_own_form(
    driven: DrivenFactory, coordinates: Mapping[str, pa.DataType], checkpointed: bool, partitioned_by: tuple[str, ...]
) -> None:
    """Pass: the drain reads on after its last offsets; every message is there once, also for delta-rs; the table's
    columns, types, folders and protocol are as before; audit, comparison and checks agree.
    """
    web, _ = taken_over(driven, coordinates, partitioned_by=partitioned_by, checkpointed=checkpointed)
    before, protocol = TableLog.existing(web.uri), DeltaTable(web.uri).protocol()

    report = web.drain()

    after = TableLog.existing(web.uri)
    assert [e.kind for e in web.entries()] == ["takeover", "drain"]
    assert report.rows_added == 30
    assert (after.schema, DeltaTable(web.uri).protocol()) == (before.schema, protocol)
    assert set(after.data_files["partition.date"].to_pylist()) <= {TODAY.isoformat()} | _days(web)
    web.assert_each_offset_once(web.publisher.log, reading=READING)
    audit, compared = web.audit(), web.compare()
    assert (audit.complete, audit.rows) == (True, 30)
    assert (compared.messages, compared.agrees) == (30, True)
    for check in CHECKED:
        found = run_check(check, CheckSubject(web.stream, web.lake, web.session))
        assert (check, found.level) == (check, "passed"), found.description


@pytest.mark.parametrize(
    ("coordinates", "checkpointed", "partitioned_by"),
    [
        pytest.param(COORDINATES, True, ("date",), id="three coordinates, checkpointed"),
        pytest.param(REORDERED, False, ("date",), id="four coordinates in another order"),
        pytest.param(FOUR, True, ("date", "method"), id="by method, checkpointed"),
        pytest.param({**COORDINATES, "timestamp": pa.int64()}, True, ("date",), id="microseconds, checkpointed"),
    ],
)
def test_each_form_of_its_table_is_drained_replayed_restored_and_drained_again(
    driven: DrivenFactory, coordinates: Mapping[str, pa.DataType], checkpointed: bool, partitioned_by: tuple[str, ...]
) -> None:
    """Procedure: plan, drain, drain more, replay one date under a document that changes a column; restore to the first
    drain; drain; audit and checks.
    Pass: only rows of that date change; after the RESTORE every message is there once; columns and types are as before.
    """
    web, _ = taken_over(driven, coordinates, partitioned_by=partitioned_by, checkpointed=checkpointed)
    before = TableLog.existing(web.uri).schema
    planned = take_snapshot(web.stream, web.lake).position_commit
    web.drain()
    restored = web.version()
    web.produce(10, seed=2)
    web.drain()
    day = date.fromisoformat(max(_days(web)))
    louder = web.with_definition(columns={"url": "concat(url, '!')"})

    done = replay_dates(louder.stream, lake=web.lake, session=web.session, first=day, last=day)
    loud = {row["date"] for row in web.rows() if row["url"].endswith("!")}
    web.session().sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {restored}")
    web.drain()

    assert planned is not None and planned.kind == "takeover"
    assert {tp: at for tp, at in planned.positions.items()} == {web.tp(0): 15, web.tp(1): 15}
    assert (set(done.rows_by_date), loud) == ({day}, {day.isoformat()})
    assert TableLog.existing(web.uri).schema == before
    web.assert_each_offset_once(web.publisher.log, reading=READING)
    assert web.audit().complete
    for check in CHECKED:
        found = run_check(check, CheckSubject(web.stream, web.lake, web.session))
        assert (check, found.level) == (check, "passed"), found.description


def _days(web: DrivenStream) -> set[str]:
    return {str(with_text_dates(m)["date"]) for m in web.publisher.log}


@pytest.mark.parametrize(
    ("coordinates", "unplaced"), [pytest.param(FOUR, 0, id="four"), pytest.param(COORDINATES, 30, id="three")]
)
def test_a_replay_of_dates_exchanges_the_rows_of_messages_that_are_certain(
    driven: DrivenFactory, coordinates: Mapping[str, pa.DataType], unplaced: int
) -> None:
    """Purpose: without timestamps, rows from before the takeover may be of an earlier topic; they stay.
    Procedure: drain, with dead letters; the document changes a column; replay all dates, dry and then for good, twice.
    Pass: rows are exchanged and counted by date, the second replay changes nothing, every message is there once.
    """
    web, _ = taken_over(driven, coordinates)
    days = sorted(date.fromisoformat(day) for day in _days(web) | {TODAY.isoformat()})
    web.send(*['{"meta": {"producer": {"timestamp": "2026-01-01"}}, "status": "many"}'] * 3)
    web.drain()
    louder = web.with_definition(columns={"method": "concat(method, '!')"})
    options: dict[str, Any] = {"lake": web.lake, "session": web.session, "first": days[0], "last": days[-1]}

    shown = replay_dates(louder.stream, **options, dry_run=True)
    done = replay_dates(louder.stream, **options)
    again = replay_dates(louder.stream, **options)

    def loud(message: Produced) -> dict[str, Any]:
        said = with_text_dates(message)
        return {**said, "method": f"{said['method']}!"} if unplaced == 0 or message.offset >= 15 else said

    rows = 60 - unplaced
    assert (shown.changes, shown.unplaced, shown.outcomes["dead_letter"]) == ({"changed": rows}, unplaced, 3)
    assert (done.changes, sum(done.rows_by_date.values())) == ({"changed": rows}, rows)
    assert done.removed_by_date == done.rows_by_date
    assert again.commit is None
    louder.assert_each_offset_once(web.publisher.log, reading=Reading(loud, WEB_REQUESTS.is_good))
    assert web.audit().complete


def test_restore_and_rewind_read_nothing_twice_and_lose_no_row_of_the_other_writer(driven: DrivenFactory) -> None:
    """Procedure: drain twice, restore to the first drain, drain; then rewind one topic partition into the rows of the
    other writer, which have no timestamps, and drain.
    Pass: every message is there once each time; the removed rows are kept in a table of their own.
    """
    web, _ = taken_over(driven, COORDINATES)
    web.drain()
    restored = web.version()
    web.produce(10, seed=2)
    web.drain()

    web.session().sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {restored}")
    web.drain()
    web.assert_each_offset_once(web.publisher.log, reading=READING)
    decision = web.resolve("rewind", topic_partition=web.tp(), to=10)
    web.drain()

    web.assert_each_offset_once(web.publisher.log, reading=READING)
    assert (decision.past_position.row_count, decision.past_position.only_copies) == (25, 25)
    kept = DeltaTable(web.stream.removed_uri(web.lake)).to_pyarrow_table().to_pylist()
    assert sorted(row["meta"]["kafka"]["offset"] for row in kept) == [*range(10, 35)]


def test_its_rows_without_a_date_stay_and_no_rewind_reaches_them(driven: DrivenFactory) -> None:
    """Its transform gave some messages no date: their folder is that of null."""
    web = driven(partitions=1, app_id="kdi", columns={})
    table = PredecessorTable(web.uri, coordinates=COORDINATES)
    table.create()
    web.send('{"method": "GET"}')
    table.ingest(1, web.produce(5))
    web.produce(5, seed=1)

    report = web.drain()
    found = run_check("dates_in_window", CheckSubject(web.stream, web.lake, web.session))
    with pytest.raises(RowsWithoutDate) as refused:
        web.resolve("rewind", topic_partition=web.tp(), to=0)

    assert (report.rows_added, web.audit().complete) == (5, True)
    assert (found.level, found.numbers["rows_outside"]) == ("warn", 1)
    assert refused.value.rows == 1
    assert len(web.rows()) == 11


def test_a_recreated_topic_needs_timestamps_and_the_refusal_has_the_alter(driven: DrivenFactory) -> None:
    web, _ = taken_over(driven, COORDINATES)
    web.drain()
    before = web.publisher.log[:]
    replace(web, publisher=make_again(web, partitions=2)).produce(6, seed=3)

    with pytest.raises(NothingToResolve) as refused:
        web.resolve("new-topic")
    *_, statement = shlex.split(refused.value.then.split("; then")[0])
    web.session().sql(statement)
    web.resolve("new-topic")
    web.drain()

    found = [row["meta"]["kafka"]["timestamp"] for row in web.rows()]
    assert (len(found), found.count(None)) == (len(before) + 6, len(before))


@pytest.mark.core
def test_what_disagrees_is_said_by_plan_and_check_before_anything_is_committed(
    driven: DrivenFactory, defs: Path, kdi: Kdi
) -> None:
    """Procedure: a table with dates by month and no column `url`; plan, check and drain; a table that suits; plan and
    check.
    """
    web, _ = taken_over(driven, COORDINATES, date_length=7)
    written(
        defs, web=web_requests_document(web.stream.topic, app_id="kdi", columns="{host: \"parse_url(url, 'HOST')\"}")
    )

    planned, checked = kdi("plan", web.stream.name), kdi("check")
    with pytest.raises(SchemaDisagrees) as refused:
        web.drain(replace(web.stream, columns={"host": "parse_url(url, 'HOST')"}))

    assert refused.value.missing == ("`host` string",)
    month = f"{TODAY.isoformat()[:7]}"
    said = f"column host is not in the table; column date is text of another form than yyyy-MM-dd: '{month}'"
    for answer in (planned.err, checked.out, str(refused.value)):
        assert said in answer
        assert f"ALTER TABLE delta.`{web.uri}` ADD COLUMNS (`host` string)" in answer
    assert (planned.code, checked.code) == (1, 1)
    assert web.version() == 2


def test_its_readmes_example_is_imported_taken_over_and_drained_with_its_bad_messages(
    driven: DrivenFactory, defs: Path, kdi: Kdi, tmp_path: Path
) -> None:
    """Procedure: its README's example, as a script, with another topic, table and broker; import, check, plan, drain,
    audit, and list the dead letters; some messages that it would have lost are bad.
    Pass: each command succeeds without a change of document or table; every message is once in the table or the dead
    letters; the plan says what nobody can tell of its offsets.
    """
    web, _ = taken_over(driven, COORDINATES, app_id="web_requests")
    web.produce(20, seed=2, bad=0.4)
    script = tmp_path / "consume.sh"
    script.write_text(README.format(topic=web.stream.topic, table=web.uri, kafka=web.stream.kafka.bootstrap_servers))
    table = web.stream.table

    words = (("import-kdi", "--yes", "--command", str(script)), ("check",), ("plan", table), ("drain", table))
    imported, checked, planned, drained = [kdi(*some) for some in words]
    audited, letters = kdi("audit", table, "--against-source"), kdi("dead-letters", "list", table)

    answers = (imported, checked, planned, drained, audited, letters)
    assert [answer.code for answer in answers] == [0] * 6, [answer.err for answer in answers]
    assert "hunter2" not in "".join(answer.out + answer.err for answer in answers)
    assert "the table has positions of another writer with this app_id" in planned.out
    assert f"kdi peek {table} --topic-partition {web.tp()} --offset 14" in planned.out
    assert [e.kind for e in web.entries()] == ["takeover", "drain"]
    bad = sum(not READING.is_good(m) for m in web.publisher.log)
    assert bad > 0
    assert (len(web.rows()), len(web.letters())) == (80 - bad, bad)
    web.assert_each_offset_once(web.publisher.log, reading=READING)
    assert "none missing, none twice" in audited.out
    assert "malformed_json" in letters.out


def test_gzip_and_explicit_offsets_of_a_command_line_decide_what_is_drained(
    driven: DrivenFactory, defs: Path, kdi: Kdi
) -> None:
    """Procedure: an empty table; compressed messages over two topic partitions; its call skips some; import, drain."""
    web = driven(partitions=2, app_id="kdi", columns={})
    PredecessorTable(web.uri).create()
    plain = [message.value or b"" for message in driven(partitions=1).produce(8)]
    for n, value in enumerate(plain):
        web.send(gzip.compress(value), partition=n % 2)
    call = ["ingest", web.stream.topic, web.uri, "-k", web.stream.kafka.bootstrap_servers, "-a", "kdi"]
    call += ["--decompress_gzip", "--seek_offsets", '{"0":1,"1":2}', "--dlq_table_location", f"{web.uri}_dlq"]
    call += ["-K", "socket.keepalive.enable=true", *(word for t in TRANSFORMS for word in ("-t", t))]

    imported, drained = kdi("import-kdi", "--yes", "--", *call), kdi("drain", web.stream.table)

    assert (imported.code, drained.code) == (0, 0), imported.err + drained.err
    read = [(row["meta"]["kafka"]["partition"], row["meta"]["kafka"]["offset"], row["url"]) for row in web.rows()]
    urls = [json.loads(value)["url"] for value in plain]
    assert sorted(read) == [(0, 2, urls[4]), (0, 3, urls[6]), (1, 3, urls[7])]
