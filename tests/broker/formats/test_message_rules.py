"""Rules on single messages, through whole drains: filter, expectations, masks, tombstones, headers."""

from __future__ import annotations

import hmac
import json
from collections import Counter
from datetime import UTC, date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import Expectation, Mask
from kdi_assets.streams.rules.errors import ExpectationNotMet
from tests.broker.tables.audits import adds_up
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.kafka_log import Produced
from tests.oracle import WEB_REQUESTS, Reading, is_good

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
POST, TEAPOT, OLD = GOOD.replace("GET", "POST"), GOOD.replace("200", "418"), GOOD.replace("2024", "1024")
NO_STATUS = GOOD.replace('"status":200,', "")
OTHER = '{"method":"HEARTBEAT","session_id":"none"}'


def decodes(message: Produced) -> bool:
    """Whether the message is a record, possibly without an allowed date."""
    try:
        status = json.loads(message.value or b"")["status"]
    except ValueError:
        return False
    return isinstance(status, int) and abs(status) < 2**31


def meets(message: Produced) -> bool:
    return is_good(message) and json.loads(message.value or b"")["status"] < 400


@pytest.mark.core
def test_every_message_is_a_row_a_dead_letter_a_tombstone_or_filtered(driven: DrivenFactory) -> None:
    """Procedure: two thirds of the decodable messages are filtered, some of them without a date; some of the others do
    not meet an expectation, others do not decode; drain.
    """
    expected = {"ok": Expectation("status < 400", "dead_letter")}
    web = driven(partitions=3, filter="kafka.offset % 3 = 1", expectations=expected, max_records=400)
    produced = web.produce(600, bad=0.1, tombstones=0.05)
    filtered = [m for m in produced if m.value is not None and decodes(m) and m.offset % 3 != 1]

    report = web.drain()

    web.assert_each_offset_once([m for m in produced if m not in filtered], reading=Reading(WEB_REQUESTS.said, meets))
    assert report.filtered == len(filtered) > 300
    assert report.positions == {web.tp(p): 200 for p in range(3)}
    assert web.letters("reason").count("expectation_not_met") == report.unmet["ok"] > 5
    assert all(status < 400 for status in web.rows("status"))
    counted: Counter[object] = Counter()
    for counts in (r for entry in web.entries() for r in entry.ranges):
        counted[counts.range.topic_partition] += counts.filtered
    assert counted == Counter(m.topic_partition for m in filtered)
    audit = web.audit()
    assert (audit.complete, audit.filtered) == (True, len(filtered))
    assert audit.tombstones == sum(m.value is None for m in produced)
    assert adds_up(audit)


FAILED, NOT_MET = "expression_failed", "expectation_not_met expectations"


@pytest.mark.parametrize(
    ("document", "values", "verdicts", "unmet"),
    [
        pytest.param({"filter": "status >= 200"}, [GOOD, NO_STATUS], ["row", "none"], {}, id="null is not true"),
        pytest.param(
            {"filter": "method = 'GET'", "columns": {"number": "CAST(session_id AS INT)"}},
            [OTHER, GOOD, OTHER.replace("HEARTBEAT", "GET")],
            ["none", "row", f"{FAILED} columns.number"],
            {},
            id="what is filtered needs no date and suits no expression",
        ),
        pytest.param(
            {"filter": "CAST(method AS INT) > 0", "columns": {}},
            [GOOD, GOOD.replace("GET", "7"), GOOD.replace("GET", "-7")],
            [f"{FAILED} filter", "row", "none"],
            {},
            id="a filter that raises",
        ),
        pytest.param(
            {"expectations": {"ok": Expectation("status < 400"), "get": Expectation("method = 'GET'")}},
            [GOOD, TEAPOT, NO_STATUS, None, "bad"],
            ["row", "row", "row", "none", "malformed_json"],
            {"ok": 2, "get": 0},
            id="a warning keeps the row",
        ),
        pytest.param(
            {
                "expectations": {
                    "ok": Expectation("status < 400", "dead_letter"),
                    "post": Expectation("method = 'POST'", "dead_letter"),
                    "short": Expectation("length(url) < 5"),
                }
            },
            [GOOD, TEAPOT, POST, TEAPOT.replace("GET", "POST")],
            [f"{NOT_MET}.post", f"{NOT_MET}.ok", "row", f"{NOT_MET}.ok"],
            {"ok": 2, "post": 2, "short": 4},
            id="each counts also where another condemned the message",
        ),
        pytest.param(
            {"filter": "method = 'GET'", "expectations": {"never": Expectation("false", "dead_letter")}},
            [GOOD, POST, OLD, "bad"],
            [f"{NOT_MET}.never", "none", "date_outside_window date", "malformed_json"],
            {"never": 1},
            id="what is filtered or a dead letter already is not asked",
        ),
        pytest.param(
            {"expectations": {"number": Expectation("CAST(method AS INT) > 0")}},
            [GOOD, GOOD.replace("GET", "7")],
            ["row", "row"],
            {"number": 1},
            id="a condition that raises is not met",
        ),
    ],
)
def test_filter_and_expectations_say_what_becomes_of_a_message(
    driven: DrivenFactory,
    document: dict[str, Any],
    values: list[str | None],
    verdicts: list[str],
    unmet: dict[str, int],
) -> None:
    web = driven(partitions=1, **document)
    web.send(*values)

    report = web.drain()

    became = dict.fromkeys(range(len(values)), "none")
    became |= dict.fromkeys(web.rows("meta.kafka.offset"), "row")
    became |= {at: " ".join(filter(None, said)) for at, *said in web.letters("offset", "reason", "field")}
    assert list(became.values()) == verdicts
    assert report.filtered == verdicts.count("none") - values.count(None)
    assert report.unmet == web.entries()[-1].unmet == unmet


def test_an_expectation_that_fails_stops_the_drain_and_names_one_of_the_messages(driven: DrivenFactory) -> None:
    web = driven(partitions=2, expectations={"ok": Expectation("status < 400", "fail")})
    web.send(GOOD, GOOD, "bad")
    web.send(GOOD, TEAPOT, GOOD, TEAPOT, partition=1)

    with pytest.raises(ExpectationNotMet) as refused:
        web.drain()

    assert (refused.value.count, refused.value.messages) == (2, 6)
    assert (refused.value.topic_partition, refused.value.offset) == (web.tp(1), 1)
    assert f"--topic-partition {web.tp(1)} --offset 1" in refused.value.message_parts()[2]
    assert [e.kind for e in web.entries()] == ["start"]
    assert TableLog.open(web.stream.dead_letters_uri(web.lake)) is None
    assert web.with_definition(expectations={}).drain().rows_added == 6
    assert Path(web.uri).exists()


def test_audit_and_comparison_tell_filtered_messages_from_rows(driven: DrivenFactory) -> None:
    """Procedure: compare with Kafka, with and without the filter; add a row where a message was filtered; audit."""
    web = driven(partitions=1, filter="method = 'GET'")
    web.send(None, POST, GOOD, POST, GOOD)
    web.drain()

    same, other = web.compare(), web.with_definition(filter="").compare()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    (row,) = rows.slice(0, 1).to_pylist()
    row["meta"]["kafka"]["offset"] = 3  # of a filtered message
    write_deltalake(web.uri, pa.Table.from_pylist([row], rows.schema), mode="append")
    report = web.audit()

    assert (same.messages, same.agreed) == (5, 5)
    assert (other.agreed, other.absent) == (3, 2)
    assert "2 were filtered" in other.notes[-1]
    assert not report.complete
    assert any("recorded 1 tombstones and 2 filtered messages" in note for note in report.notes), report.notes


def header(name: str) -> str:
    """The expression of docs/streams.md."""
    return f"CAST(get(filter(kafka.headers, h -> h.key = '{name}'), 0).value AS STRING)"


def test_columns_date_and_filter_read_key_and_headers(driven: DrivenFactory) -> None:
    web = driven(
        partitions=1,
        record_ddl="url string",
        coordinates="kafka",
        columns={"tenant": "CAST(kafka.key AS STRING)", "meta.trace": header("trace"), "sent": "to_json(kafka)"},
        date_expression=f"to_date({header('day')})",
        filter="kafka.key IN ('eu', 'us') AND NOT exists(coalesce(kafka.headers, array()), h -> h.key = 'test')",
    )
    day = ("day", b"2026-03-01")
    web.send(GOOD, key="eu", headers=[day, ("trace", b"t-1"), ("trace", b"t-2")])
    web.send(GOOD, key="us", headers=[day])
    web.send(GOOD, key="eu", headers=[day, ("test", None)])
    web.send(GOOD, key="as", headers=[day])
    web.send(GOOD, key="eu")

    report = web.drain()

    of_day = date(2026, 3, 1)
    assert web.rows("tenant", "meta.trace", "date") == [("eu", "t-1", of_day), ("us", None, of_day)]
    assert '"headers":[{"key":"day"' in web.rows("sent")[0]
    assert (web.letters("offset", "reason"), report.filtered) == ([(4, "no_date")], 2)
    assert web.compare().agreed == 5


HASH = Mask("hash", secret="MASK_TEST_SECRET")


def personal(**fields: str) -> str:
    given = {"mail": "ann@example.com", "card": "4111111111111234", "ip": "10.0.0.1", "session": "s3cret"}
    return json.dumps({**given, "at": "2026-03-01", **fields})


def test_what_is_masked_lies_in_neither_table_and_both_agree_with_what_kafka_holds(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HASH.secret, "pepper")
    masks = {"mail": HASH, "card": Mask("keep_last", keep=4), "ip": Mask("null"), "session": Mask("drop")}
    ddl = "mail string, card string, ip string, session string, at date"
    web = driven(partitions=1, record_ddl=ddl, date_expression="at", coordinates="kafka", columns={}, mask=masks)
    values = personal(), personal(at="1999-01-01"), None, '{"mail": "ann@example.com"', personal()
    web.send(*values, key="ann@example.com", headers=[("h", b"x")])

    web.drain()
    complete, row, letters = web.audit().complete, web.rows()[0], web.letters()
    DeltaTable(web.uri).update(updates={"card": "'other'"}, predicate="kafka['offset'] = 0")
    compared = web.compare()

    hidden = {"mail": hmac.new(b"pepper", b"ann@example.com", "sha256").hexdigest(), "card": "************1234"}
    assert {name: row[name] for name in row if name not in ("at", "date", "kafka")} == {**hidden, "ip": None}
    assert json.loads(letters[0]["value"]) == {**hidden, "ip": None, "at": "1999-01-01"}
    assert [(x["reason"], x["key"], x["headers"]) for x in letters] == [
        ("date_outside_window", None, None),
        ("malformed_json", None, None),
    ]
    assert letters[1]["value"] is None
    assert complete
    assert (compared.messages, compared.agreed, compared.changed, compared.absent) == (5, 4, 1, 0)


def test_tombstones_become_rows_that_know_their_key_or_dead_letters(driven: DrivenFactory) -> None:
    """Procedure: the same messages to a stream of each kind; drain, audit, and compare with the topic."""

    def drained(policy: str, counts: tuple[int, int]) -> DrivenStream:
        web = driven(
            partitions=1,
            tombstones=policy,
            record_ddl="name string, at date",
            date_expression="coalesce(at, to_date(kafka.timestamp))",
            coordinates="kafka",
            columns={"id": "CAST(kafka.key AS STRING)", "deleted": "kafka.tombstone"},
        )
        web.send('{"name": "Ann", "at": "2026-03-01"}', None, "bad", key="a")
        report = web.drain()
        assert (report.rows_added, report.dead_letters) == counts
        assert sum(c.tombstones for c in report.commits) == 0
        assert web.audit().complete
        assert web.compare().agreed == 3
        return web

    rows, letters = drained("row", (2, 1)), drained("dead_letter", (1, 2))

    assert rows.rows("id", "name", "deleted") == [("a", "Ann", False), ("a", None, True)]
    gone = rows.rows()[1]
    assert (gone["at"], gone["date"]) == (None, gone["kafka"]["timestamp"].astimezone(UTC).date())
    assert letters.letters("reason", "field", "key", "value")[0] == ("tombstone", None, b"a", None)
