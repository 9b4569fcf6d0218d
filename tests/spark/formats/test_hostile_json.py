"""Random hostile JSON under each contract, compared with Python's own parser: no message stops the others."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_rules import Contract, Mask
from kdi_assets.streams.drain.schema_evolution import gaining
from kdi_assets.streams.rules.records import stream_decoder
from tests.formats.json_judge import DDL, SCHEMA, Found, Refused, found_in, is_kept, messages
from tests.judged import Judged, frame_of_messages, judged, stream_of

SEED, COUNT = 20261130, 3_000
TEXTS = list(dict.fromkeys(messages(SEED, COUNT)))


@pytest.fixture(autouse=True, scope="module")
def _deep_values() -> Iterator[None]:
    """PySpark's ``toJson`` of a variant calls itself four times a level."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)
    yield
    sys.setrecursionlimit(before)


Expected = dict[int, Found | Refused]
"""By offset."""


def _expected(*, salvages: bool) -> Expected:
    return {offset: _found(text, salvages=salvages) for offset, text in enumerate(TEXTS)}


def _found(text: str, *, salvages: bool) -> Found | Refused:
    try:
        return found_in(text, salvages=salvages)
    except Refused as refused:
        return refused


@pytest.mark.core
@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("types", ["discard_row", "discard_value"])
@pytest.mark.parametrize("rescued", ["", "more", "more variant"])
def test_each_message_has_the_verdict_and_the_rescued_values_of_python(
    spark: SparkSession, types: Any, rescued: str
) -> None:
    stream = stream_of(DDL, contract=Contract(types=types), rescued=rescued)

    found = judged(spark, stream, _encoded())

    expected = _expected(salvages=types == "discard_value")
    assert_as_expected(found, expected)
    kept = {row["kafka"]["offset"]: _parsed(row["more"]) for row in found.rows} if rescued else {}
    for offset, values in kept.items():
        of_python = {place: value for place, (_, value) in _beside(expected[offset]).items()}
        right = values.keys() == of_python.keys() and all(is_kept(values[p], of_python[p]) for p in values)
        assert right, (SEED, TEXTS[offset][:300], values, of_python)
    assert not rescued or sum(map(bool, kept.values())) > COUNT // 5


def test_a_row_has_no_unknown_field_where_the_contract_discards_such_rows(spark: SparkSession) -> None:
    found = judged(spark, stream_of(DDL, contract=Contract("discard_row")), _encoded())

    for offset, each in _expected(salvages=False).items():
        letter = next((x for x in found.letters if x["offset"] == offset), None)
        if isinstance(each, Found):
            paths = sorted({path for path, _ in each.unknown.values()}, key=str.encode)
            said = (letter["reason"], letter["field"]) if letter else None
            assert said == (("unknown_field", paths[0] or None) if paths else None), (SEED, TEXTS[offset][:300])


@pytest.mark.parametrize("types", ["discard_row", "discard_value"])
def test_masked_values_are_neither_rescued_nor_in_dead_letters(spark: SparkSession, types: Any) -> None:
    """Pass: and letters of documents with too many levels or digits have no value, as Spark could not write it."""
    masks = {"s": Mask("drop"), "who.name": Mask("null")}
    stream = stream_of(DDL, contract=Contract(types=types), rescued="more", mask=masks)
    others = [b'{"u":' + b"[" * n + b"]" * n + b"}" for n in (950, 998)] + [b'{"who":{},"u":' + b"7" * 10**6 + b"}"]
    deep = b"[" * 300 + b"]" * 300
    no_rows = [b'{"who":{"name":"secret"},"deep":' + deep + b"}"]

    found = judged(spark, stream, [*_encoded(), *others, *no_rows])

    assert_as_expected(found, _expected(salvages=types == "discard_value"), more=4, masked=("s", "who"))
    for row in found.rows:
        assert not {"s", "who", "who.name"} & _parsed(row["more"]).keys()
    last = {letter["offset"] - len(TEXTS): letter["value"] for letter in found.letters}
    assert [last[n] for n in range(4)] == [None, None, None, b'{"deep":' + deep + b',"who":{"name":null}}']
    values = [json.loads(letter["value"]) for letter in found.letters if letter["value"]]
    assert len(values) > (COUNT // 10 if types == "discard_row" else 0)
    assert not any("s" in value or (value.get("who") or {}).get("name") for value in values)


def test_a_stream_that_gains_columns_of_them_gives_each_a_verdict(spark: SparkSession) -> None:
    stream = stream_of(DDL, contract=Contract("evolve", "evolve"))
    first, frame = judged(spark, stream, _encoded()), frame_of_messages(spark, _encoded())

    grown = gaining(frame, stream_decoder(stream), first.counts, now=datetime.now(UTC))

    assert_as_expected(first, _expected(salvages=False))
    assert grown is not None
    found = judged(spark, grown, _encoded())
    assert sorted(_offsets(found)) == [*range(len(TEXTS))]


def assert_as_expected(found: Judged, expected: Expected, *, more: int = 0, masked: Collection[str] = ()) -> None:
    """Pass: each offset once; records, reasons, and unknown fields and misfits of rows as expected.

    Args:
        more: Messages after the expected ones.
        masked: Columns that are not compared.
    """
    assert sorted(_offsets(found)) == [*range(len(TEXTS) + more)]
    for row in found.rows:
        if of_python := expected.get(offset := row["kafka"]["offset"]):
            assert isinstance(of_python, Found), (SEED, TEXTS[offset][:300], of_python)
            record = {name: of_python.record[name] for name in SCHEMA if name not in masked}
            assert {name: row[name] for name in record} == record, (SEED, TEXTS[offset][:300])
    for letter in found.letters:
        if of_python := expected.get(offset := letter["offset"]):
            assert isinstance(of_python, Refused), (SEED, TEXTS[offset][:300], of_python)
            assert (letter["reason"], letter["field"]) == of_python.args, (SEED, TEXTS[offset][:300])
    if not more:
        rows = [each for each in expected.values() if isinstance(each, Found)]
        for side, counted in (("unknown", found.counts.unknown), ("misfits", found.counts.misfits)):
            paths = Counter(path for row in rows for path in {path for path, _ in getattr(row, side).values()})
            assert counted.fields.named == {path or '""': count for path, count in paths.items()}, (SEED, side)


def _encoded() -> list[bytes]:
    return [text.encode("utf-8", "surrogatepass") for text in TEXTS]


def _offsets(found: Judged) -> list[int]:
    return [row["kafka"]["offset"] for row in found.rows] + [letter["offset"] for letter in found.letters]


def _beside(found: Found | Refused) -> dict[str, tuple[str, Any]]:
    return {**found.unknown, **found.misfits} if isinstance(found, Found) else {}


def _parsed(rescued: Any) -> dict[str, Any]:
    """A rescued column, whose numbers keep their digits."""
    with localcontext(prec=40):  # PySpark rounds the decimals of a variant to it
        text = rescued if rescued is None or isinstance(rescued, str) else rescued.toJson()
    parsed: dict[str, Any] = json.loads(text or "{}", parse_float=Decimal)
    return parsed
