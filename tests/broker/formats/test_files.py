"""`format: files` from the topic to the table: the rows of the files that messages name, each message as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdi_assets.documents.model.message_format import FileNames, Files, Json, Parquet
from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.streams.announce.announce import announce
from kdi_assets.streams.drain.errors import AccountingMismatch
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.rules.errors import ExpectationNotMet
from kdi_assets.streams.spark_errors import ReadOrWriteFailed
from tests.broker.formats.order_files import DAY, ORDERS
from tests.conftest import DrivenFactory, TopicFactory, also_on_s3
from tests.driven import WEB_REQUESTS, DrivenStream, Once

COLUMNS = ("method", "session_id", "status", "url", "uuid", "host", "date")
AT = ("id", "kafka.offset", "kafka.index", "kafka.count")


class Orders(DrivenStream):
    """A stream whose messages name files with orders, and the folder of these files."""

    folder: Path

    def file(self, name: str, ids: Sequence[int | None], **columns: Any) -> str:
        """Write a file with these orders; its path."""
        table = {"id": pa.array(ids, pa.int64()), "price": [float(n or 0) / 2 for n in ids], "day": [DAY] * len(ids)}
        path = self.folder / name
        pq.write_table(pa.table({**table, **columns, "left_out": ["x"] * len(ids)}), path, row_group_size=3)
        return str(path)

    def reasons(self) -> dict[int, tuple[str, str | None]]:
        """Reason and field of each dead letter, by offset."""
        found = self.letters("offset", "reason", "field")
        return {offset: (reason, field and Path(field).name) for offset, reason, field in found}


@pytest.fixture
def orders(driven: DrivenFactory, tmp_path: Path) -> Callable[..., Orders]:
    """Makes streams whose messages name files below a folder of the test."""
    folder = tmp_path / "files"
    folder.mkdir()

    def make(of: Parquet | Json = Parquet(), names: FileNames = "paths", **fields: Any) -> Orders:  # noqa: B008
        made = driven(1, **{**ORDERS, "format": Files(of, names, (str(folder),)), **fields})
        orders = Orders(made.stream, made.lake, made.publisher, made.session)
        orders.folder = folder
        return orders

    return make


def copy_of(web: DrivenStream, names: str, **fields: Any) -> DrivenStream:
    """A stream of the files that another one announces, into a table of its own."""
    stream = DrivenStream(web.stream, web.lake, web.publisher, web.session).with_definition(
        topic=names,
        app_id=names,
        table="silver/requests",
        record_ddl=WEB_REQUESTS,
        format=Files(Parquet(), "announcements", (web.lake,)),
        announce=None,
        coordinates="kafka",
        **fields,
    )
    return stream


@also_on_s3
@pytest.mark.core
def test_the_files_that_a_stream_announces_become_the_same_rows_in_another_table(
    driven: DrivenFactory, topic: TopicFactory
) -> None:
    names = topic(1)
    web = driven(announce=Announce(names))
    web.drain_rounds(2, 30)
    copy = copy_of(web, names)

    report, again = copy.drain(), copy.drain()

    assert sorted(map(repr, copy.rows(*COLUMNS))) == sorted(map(repr, web.rows(*COLUMNS)))
    assert (report.rows_added, report.dead_letters, again.rows_added) == (60, 0, 0)
    audit = copy.audit()
    assert (audit.complete, audit.became_rows, audit.rows) == (True, 2, 60), audit.notes


def test_moved_rows_are_filtered_and_replaced_rows_are_dead_letters(driven: DrivenFactory, topic: TopicFactory) -> None:
    names = topic(1)
    web = driven(announce=Announce(names))
    web.drain_rounds(2, 20)
    web.session().sql(f"OPTIMIZE delta.`{web.uri}`")
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = 3")
    announce(web.stream, web.lake)
    copy = copy_of(web, names)

    report = copy.drain()

    assert (report.rows_added, report.filtered, report.dead_letters) == (40, 1, 1)
    assert [reason for reason in copy.letters("reason")] == ["replaces_rows"]
    assert copy.audit().complete


def test_a_message_is_in_the_table_with_all_rows_of_its_files_or_a_dead_letter(orders: Callable[..., Orders]) -> None:
    """Procedure: messages of one file and of several, with blanks and percent signs in names; a missing file, a broken
    one, one with a broken page, others with another type, without a column that is needed, outside of the folder, with
    a row that has no date, with a null that is not allowed; nothing named; no value.
    """
    web = orders()
    good, more = web.file("a.parquet", range(5)), web.file("b c+ü%20d.parquet", range(5, 12))
    broken, torn = web.folder / "broken.parquet", Path(web.file("torn.parquet", range(1000, 9000)))
    broken.write_bytes(b"PAR1 no parquet PAR1")
    content = bytearray(torn.read_bytes())
    content[20:2000] = bytes(1980)
    torn.write_bytes(content)
    mangled = Path(web.file("mangled.parquet", range(3)))
    content = bytearray(mangled.read_bytes())
    content[-60:-8] = bytes(52)
    mangled.write_bytes(content)
    outside = web.folder.parent / "outside.parquet"
    outside.write_bytes(Path(good).read_bytes())
    produced = web.send(
        f"{good}\n{more}\n",
        "a.parquet",  # in the only root
        f"{good}\n{web.folder}/missing.parquet",
        str(broken),
        f"{good}\n{torn}",
        web.file("type.parquet", [1], price=["1.5"]),
        str(outside),
        f"{web.folder}/../outside.parquet",
        web.file("date.parquet", range(3), day=[DAY, None, DAY]),
        web.file("null.parquet", [1, None]),
        "\n",
        None,
        web.file("empty.parquet", []),
        str(mangled),
    )

    report = web.drain()

    expected = [(n, 0, n, 12) for n in range(12)] + [(n, 1, n, 5) for n in range(5)]
    assert web.rows(*AT) == expected
    assert {file for file in web.rows("file")} == {"a.parquet", "b c+ü%20d.parquet"}
    assert web.reasons() == {
        2: ("missing_file", "missing.parquet"),
        3: ("unreadable_file", "broken.parquet"),
        4: ("unreadable_file", "torn.parquet"),
        5: ("other_schema", "price"),
        6: ("outside_root", "outside.parquet"),
        7: ("outside_root", "outside.parquet"),
        8: ("no_date", "date"),
        9: ("missing_field", "id"),
        10: ("names_no_file", None),
        12: ("no_rows", None),
        13: ("unreadable_file", "mangled.parquet"),
    }
    assert (report.rows_added, report.dead_letters, report.tombstones) == (17, 11, 1)
    audit = web.audit()
    assert (audit.complete, audit.offsets, audit.became_rows) == (True, len(produced), 2), audit.notes


def test_a_file_that_comes_later_is_read_when_its_dead_letter_is_replayed(orders: Callable[..., Orders]) -> None:
    web = orders()
    web.send(web.file("there.parquet", range(4)), f"{web.folder}/late.parquet")
    web.drain()
    web.file("late.parquet", range(4, 10))

    done = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert done.outcomes == {"row": 1}
    assert web.rows(*AT) == [(n, 0, n, 4) for n in range(4)] + [(n + 4, 1, n, 6) for n in range(6)]
    assert web.audit().complete


def test_a_replay_of_dates_reads_the_files_again(orders: Callable[..., Orders]) -> None:
    """Procedure: drain two messages; one of the files is written again with other orders, one is deleted; replay.
    Pass: the rows are those of the files now, and the message of the deleted file is a dead letter.
    """
    web = orders()
    first, second = web.file("a.parquet", range(4)), web.file("b.parquet", range(4, 8))
    web.send(first, second)
    web.drain()
    web.file("a.parquet", range(100, 106))
    Path(second).unlink()

    done = replay_dates(web.stream, lake=web.lake, session=web.session, first=DAY, last=DAY)

    assert done.outcomes == {"row": 1, "dead_letter": 1}
    assert web.rows(*AT) == [(n + 100, 0, n, 6) for n in range(6)]
    assert web.reasons() == {1: ("missing_file", "b.parquet")}
    assert web.audit().complete


def test_files_that_change_between_the_two_passes_stop_the_drain(orders: Callable[..., Orders]) -> None:
    web = orders()
    web.send(web.file("a.parquet", range(4)))

    with pytest.raises((AccountingMismatch, ReadOrWriteFailed)):
        web.drain(at=Once("before reading", lambda: web.file("a.parquet", range(9))))
    web.drain()

    assert web.rows(*AT) == [(n, 0, n, 9) for n in range(9)]


def test_rows_of_a_file_that_is_written_again_are_judged_before_they_are_written(orders: Callable[..., Orders]) -> None:
    """Procedure: between the two passes a file gets as many rows as before, one of them bad.
    Pass: the drain stops; the next one makes the message a dead letter.
    """
    web = orders()
    web.send(web.file("a.parquet", range(4)))

    with pytest.raises(ReadOrWriteFailed, match="written again"):
        web.drain(at=Once("before reading", lambda: web.file("a.parquet", [0, 1, None, 3])))
    web.drain()

    assert web.rows(*AT) == []
    assert web.reasons() == {0: ("missing_field", "id")}


def test_lines_of_json_files_are_judged_like_messages_of_json(orders: Callable[..., Orders]) -> None:
    web = orders(Json())
    lines = [json.dumps({"id": n, "price": n / 2, "day": str(DAY), "more": 1}) for n in range(4)]
    good, bad, wrong = (web.folder / f"{name}.json" for name in ("good", "bad", "wrong"))
    good.write_text("\n".join(lines) + "\n")
    bad.write_text("\n".join([*lines, '{"id": 9, "day": "2026-03-01"} trailing']))
    wrong.write_text('{"id": "one", "day": "2026-03-01"}')
    web.send(f"{good}\n{good}", str(bad), str(wrong))

    report = web.drain()

    assert web.rows("id", "cents", "kafka.index", "kafka.count") == [(n % 4, n % 4 * 50, n, 8) for n in range(8)]
    assert web.reasons() == {1: ("trailing_text", None), 2: ("wrong_type", "id")}
    assert report.rows_added == 8


def test_expectations_filter_and_masks_hold_for_rows_of_files(orders: Callable[..., Orders]) -> None:
    expected = {"cheap": Expectation("price < 100", "dead_letter"), "small": Expectation("id < 3", "warn")}
    web = orders(expectations=expected, filter="kafka.offset <> 1")
    web.send(*(web.file(f"{n}.parquet", [n, n + 1]) for n in (1, 2, 3, 300)))

    report = web.drain()

    assert [(id_, offset) for id_, offset, *_ in web.rows(*AT)] == [(1, 0), (2, 0), (3, 2), (4, 2)]
    assert web.reasons() == {3: ("expectation_not_met", "expectations.cheap")}
    assert (report.filtered, report.unmet) == (1, {"cheap": 1, "small": 2})
    failing = web.with_definition(expectations={"small": Expectation("id < 3", "fail")})
    web.send(str(web.folder / "3.parquet"))
    with pytest.raises(ExpectationNotMet, match="small"):
        failing.drain()


def test_timestamps_of_messages_are_the_coordinates_of_their_rows(orders: Callable[..., Orders]) -> None:
    web = orders()
    moment = datetime(2026, 10, 25, 1, 30, 0, 123000, tzinfo=UTC)
    web.send(web.file("a.parquet", range(2)), timestamp=moment)

    web.drain()

    assert set(web.rows("kafka.timestamp")) == {moment}


def test_unsigned_numbers_keep_their_values(orders: Callable[..., Orders]) -> None:
    """Pass: those of a wider type are rows, also dictionary-encoded; a narrower type is a dead letter and no guess."""
    declared = {"u8": "smallint", "u16": "int", "u32": "bigint", "u64": "decimal(20,0)"}
    ddl = ", ".join(f"{name} {kind}" for name, kind in declared.items())
    files = orders(record_ddl=ddl, columns={}, date_expression="to_date(kafka.timestamp)")
    most = {name: 2 ** int(name[1:]) - 1 for name in declared}
    columns = {name: pa.array([0, value, value], f"uint{name[1:]}") for name, value in most.items()}
    for encoding in (True, False):
        path = files.folder / f"dictionary_{encoding}.parquet"
        pq.write_table(pa.table(columns), path, use_dictionary=encoding)
        files.publisher.produce(files.stream.topic, str(path).encode())
    files.publisher.flush()

    files.drain()
    other = ddl.replace("decimal(20,0)", "bigint")
    narrower = files.with_definition(record_ddl=other, table="bronze/narrower", app_id="narrower")
    letters = narrower.drain()

    rows = sorted(files.rows(*declared))
    assert rows == [(0, 0, 0, 0)] * 2 + [tuple(most.values())] * 4
    assert (letters.rows_added, letters.dead_letters) == (0, 2)
