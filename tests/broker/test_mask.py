"""`mask` from the topic to both tables, and back in the audit."""

from __future__ import annotations

import hmac
import json

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.compare import compare
from kdi_assets.message_rules import Mask
from tests.conftest import DrivenFactory

HASH = Mask("hash", secret="MASK_TEST_SECRET")
RECORD = "mail string, card string, ip string, session string, at date"


def message(**fields: str) -> str:
    given = {"mail": "ann@example.com", "card": "4111111111111234", "ip": "10.0.0.1", "session": "s3cret"}
    return json.dumps({**given, "at": "2026-03-01", **fields})


def test_what_is_masked_lies_in_neither_table_and_both_agree_with_what_kafka_holds(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HASH.secret, "pepper")
    masks = {"mail": HASH, "card": Mask("keep_last", keep=4), "ip": Mask("null"), "session": Mask("drop")}
    web = driven(partitions=1, record_ddl=RECORD, date_expression="at", coordinates="kafka", columns={}, mask=masks)
    for value in (message(), message(at="1999-01-01"), None, '{"mail": "ann@example.com"', message()):
        web.publisher.produce(web.stream.topic, value, key="ann@example.com", headers=[("h", b"x")], partition=0)
    web.publisher.flush()

    web.drain()
    complete, found = web.audit().complete, web.found()
    DeltaTable(web.uri).update(updates={"card": "'other'"}, predicate="kafka['offset'] = 0")
    compared = compare(web.stream, lake=web.lake, session=web.session)

    (row, _), letters = found.rows, sorted(found.dead_letters, key=lambda letter: int(letter["offset"]))
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
