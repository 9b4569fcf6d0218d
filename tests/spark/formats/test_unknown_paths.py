"""Paths of unknown fields of JSON equal those that Python finds, for any text."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kdi_assets.messages.formats.decoder import DECODED, PATHS, UNKNOWN
from kdi_assets.streams.rules.records import stream_decoder
from tests.formats import odd_json
from tests.judged import stream_of

SEED = 20260311
CASES = {"nested": (odd_json.DDL, odd_json.FIELDS), "flat": (odd_json.FLAT_DDL, odd_json.FLAT_FIELDS)}
BY_NAMES = [
    '{"id":1,"f1":"x"}',
    '{"f1":"x","f2":2,"f3":[1,2]}',
    '{"id":1, "f1": {"a": {"b": 1}}, "who": {"name": "x"}, "items": [{"sku": "s"}, {}], "by": {"x": {"n": 1}}}',
    '{"id":null,"f1":1}',
    '{"id":null,"f1":null,"f2":"null"}',
    '{"id":1,"text":"\\":","f1":1,"who":{"home":{"city":null}}}',
    '{"id":1,"text":"a : b","f1":1}',
    '{"id" : 1, "f1" : {"a" : 1}, "who" : {"name" : "x"}}',
    '{"id":1,"a.b":1,"f\\u0031":2}',
]


def paths(spark: SparkSession, ddl: str, texts: list[str]) -> dict[str, tuple[list[str], list[str]]]:
    """The paths of each decoded text, computed alone and together with the fields' values."""
    decoder = stream_decoder(stream_of(ddl))
    rows = [(n, text.encode()) for n, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "n int, _kdi_value binary").repartition(4)
    decoded = decoder.with_unknown(decoder.decode(frame), where=DECODED)
    both = decoder.with_unknown_paths(decoded, where=DECODED).where(DECODED).select("n", PATHS, f"{UNKNOWN}.path")
    found = {texts[row[0]]: row for row in both.collect()}
    return {
        text: (list(found[text][1] or ()), sorted(set(found[text][2] or ()), key=str.encode))
        for text in texts
        if text in found
    }


@pytest.mark.parametrize("case", CASES)
def test_paths_are_those_that_python_tells_of_whatever_text(spark: SparkSession, case: str) -> None:
    ddl, fields = CASES[case]
    texts = odd_json.documents(SEED, 1500, fields) + (BY_NAMES if case == "nested" else [])

    found = paths(spark, ddl, texts)

    expected = {text: odd_json.unknown(text, fields) for text in found}
    alone = [(text, told, expected[text]) for text, (told, _) in found.items() if told != expected[text]]
    assert alone[:3] == [], f"{len(alone)} differ, seed {SEED}"
    with_values = [(text, told, expected[text]) for text, (_, told) in found.items() if told != expected[text]]
    assert with_values[:3] == [], f"{len(with_values)} differ, seed {SEED}"
    # Those with a duplicate name and a text that looks like something else are dead letters.
    assert len(found) > 0.8 * len(texts)
    assert 0.4 < sum(1 for told in expected.values() if told) / len(found) < 0.9


def test_a_record_of_many_fields_and_one_of_none_are_told_of_alike(spark: SparkSession) -> None:
    wide = ", ".join(f"c{n} string" for n in range(60))
    texts = ['{"c1":"x","more":1}', "{}", '{"c59":null,"more":null}', '{"more":1,"and":{"a":2}}']

    assert [told for told, _ in paths(spark, wide, texts).values()] == [["more"], [], [], ["and", "more"]]
