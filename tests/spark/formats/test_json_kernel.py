"""The kernel compared with Python's own parser, over random documents."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row, SparkSession

from kdi_assets.messages.formats.decoder import DECODED, DOCUMENT, RECORD
from kdi_assets.streams.rules.records import stream_decoder
from tests.formats.json_judge import DDL, Refused, judged, messages
from tests.judged import stream_of

SEED, COUNT = 20261123, 6_000


def test_the_kernel_judges_as_python_does_whatever_the_message(spark: SparkSession) -> None:
    decoder = stream_decoder(stream_of(DDL))
    texts = list(dict.fromkeys(messages(SEED, COUNT)))
    rows = [(n, text.encode("utf-8", "surrogatepass")) for n, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "n int, _kdi_value binary").repartition(4)
    decoded = decoder.decode(frame).select("n", DECODED, RECORD, f"{DOCUMENT}.reason", f"{DOCUMENT}.field")

    found = {
        texts[n]: _plain(record) if is_record else [reason, field]
        for n, is_record, record, reason, field in decoded.collect()
    }

    expected = {text: _judged(text) for text in texts}
    different = [(text, found[text], expected[text]) for text in texts if found[text] != expected[text]]
    assert different[:3] == [], f"{len(different)} differ, seed {SEED}"
    reasons = {verdict[0] for verdict in expected.values() if isinstance(verdict, list)}
    assert reasons >= {
        "malformed_json",
        "trailing_text",
        "wrong_type",
        "out_of_range",
        "too_precise",
        "invalid_utf8",
        "missing_field",
    }
    assert 0.4 < sum(isinstance(verdict, dict) for verdict in expected.values()) / len(texts) < 0.9


def _judged(text: str) -> Any:
    try:
        return judged(text)
    except Refused as refused:
        return list(refused.args)


def _plain(value: Any) -> Any:
    match value:
        case Row():
            return {name: _plain(each) for name, each in value.asDict().items()}
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value
