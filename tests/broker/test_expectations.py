"""`expectations`: what is asked of every message that is to be a row, counted in the pass that writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.checks.measures import found
from kdi_assets.checks.subject import Subject
from kdi_assets.drain.expectations import ExpectationNotMet
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.message_rules import Expectation
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
TEAPOT = GOOD.replace("200", "418")
NO_STATUS = GOOD.replace('"status":200,', "")


def test_an_expectation_that_warns_keeps_the_row_and_counts_it(driven: DrivenFactory) -> None:
    web = driven(partitions=1, expectations={"ok": Expectation("status < 400"), "get": Expectation("method = 'GET'")})
    web.publisher.produce_all(web.stream.topic, [GOOD, TEAPOT, NO_STATUS, None, "bad"])

    report = web.drain()

    assert (report.rows_added, report.dead_letters, report.unmet) == (3, 1, {"ok": 2, "get": 0})
    *_, entry = entries(web.uri, web.stream.app_id)
    assert entry.unmet == {"ok": 2, "get": 0}
    finding = found("expectations", Subject(web.stream, web.lake, web.session))
    assert (finding.level, finding.numbers["ok"], finding.numbers["became_rows"]) == ("warn", 2, 3)


@pytest.mark.core
def test_an_expectation_makes_dead_letters_of_those_that_do_not_meet_it(driven: DrivenFactory) -> None:
    web = driven(partitions=2, expectations={"ok": Expectation("status < 400", "dead_letter")})
    produced = web.produce(300, bad=0.1, tombstones=0.05)

    report = web.drain()

    found_ = web.found()
    refused = [x for x in found_.dead_letters if x["reason"] == "expectation_not_met"]
    assert {x["field"] for x in refused} == {"expectations.ok"}
    assert len(refused) == report.unmet["ok"] > 20
    assert all(row["status"] < 400 for row in found_.rows)
    assert len(found_.rows) + len(found_.dead_letters) == sum(m.value is not None for m in produced)
    assert web.audit().complete


def test_each_expectation_counts_also_where_another_condemned_the_message(driven: DrivenFactory) -> None:
    expected = {
        "ok": Expectation("status < 400", "dead_letter"),
        "post": Expectation("method = 'POST'", "dead_letter"),
        "short": Expectation("length(url) < 5"),
    }
    web = driven(partitions=1, expectations=expected)
    post = [message.replace("GET", "POST") for message in (GOOD, TEAPOT)]
    web.publisher.produce_all(web.stream.topic, [GOOD, TEAPOT, *post])

    report = web.drain()

    assert report.unmet == {"ok": 2, "post": 2, "short": 4}
    letters = {x["offset"]: x["field"] for x in web.found().dead_letters}
    assert letters == {0: "expectations.post", 1: "expectations.ok", 3: "expectations.ok"}


def test_what_is_filtered_or_a_dead_letter_already_is_not_asked(driven: DrivenFactory) -> None:
    web = driven(partitions=1, filter="method = 'GET'", expectations={"never": Expectation("false", "dead_letter")})
    web.publisher.produce_all(web.stream.topic, [GOOD, GOOD.replace("GET", "PUT"), GOOD.replace("2024", "1024"), "bad"])

    report = web.drain()

    assert (report.filtered, report.dead_letters, report.unmet) == (1, 3, {"never": 1})
    reasons = {x["offset"]: x["reason"] for x in web.found().dead_letters}
    assert reasons == {0: "expectation_not_met", 2: "date_outside_window", 3: "malformed_json"}


def test_a_condition_that_raises_is_not_met(driven: DrivenFactory) -> None:
    web = driven(partitions=1, expectations={"number": Expectation("CAST(method AS INT) > 0")})
    web.publisher.produce_all(web.stream.topic, [GOOD, GOOD.replace("GET", "7")])

    report = web.drain()

    assert (report.rows_added, report.unmet) == (2, {"number": 1})


def test_an_expectation_that_fails_stops_the_drain_and_names_one_of_the_messages(driven: DrivenFactory) -> None:
    web = driven(partitions=2, expectations={"ok": Expectation("status < 400", "fail")})
    web.publisher.produce_all(web.stream.topic, [GOOD, GOOD, "bad"], partition=0)
    web.publisher.produce_all(web.stream.topic, [GOOD, TEAPOT, GOOD, TEAPOT], partition=1)

    with pytest.raises(ExpectationNotMet) as refused:
        web.drain()

    at = TopicPartition(web.stream.topic, 1)
    assert (refused.value.count, refused.value.messages) == (2, 6)
    assert (refused.value.topic_partition, refused.value.offset) == (at, 1)
    assert f"--topic-partition {at} --offset 1" in refused.value.parts()[2]
    assert [e.kind for e in entries(web.uri, web.stream.app_id)] == ["start"]
    assert TableLog.open(web.stream.dead_letters_uri(web.lake)) is None
    assert web.with_definition(expectations={}).drain().rows_added == 6
    assert Path(web.uri).exists()
