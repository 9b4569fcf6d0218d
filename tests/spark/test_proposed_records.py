"""What `kdi new` foretells on the driver is what Spark and the decoders then do."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.message_format import Csv, Json
from kdi_assets.proposal import csv_lines
from kdi_assets.proposal.ddl_text import ddl_lines
from kdi_assets.proposal.fit import misfit
from kdi_assets.proposal.json_text import NoObject, json_object
from kdi_assets.proposal.seen import seen_in
from kdi_assets.proposal.times import moment_of, sql_of_number, told
from kdi_assets.proposal.types import record_of
from tests.verdicts import verdicts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALARS = (
    "1", "-7", "0", "9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "1.5", "-0.25",
    "1.50", "1e3", "1E-7", "0.1234567890123456789", "true", "false", "null", '"x"', '""', '"5.10"', '"12"', '"007"',
    '"NaN"', '"2026-03-01"', '"2026-03-01T10:00:00Z"', '"2026-03-01 10:00:00.123456"',
    '"2026-03-01T10:00:00.1234567Z"',
    '"2026-03-01T10:00:00+0100"', '"2026-02-30"', '"10:00:00"', '"grüße"', '"[1]"', '"{}"',
)  # fmt: skip


def value(random: Random, usual: str, depth: int = 0) -> str:
    """Mostly the usual value of a field, now and then any other, nested or not."""
    draw = random.random()
    if draw < 0.9:
        return usual
    if draw < 0.97 or depth > 1:
        return random.choice(SCALARS)
    inner = [value(random, random.choice(SCALARS), depth + 1) for _ in range(random.randrange(3))]
    return (
        f"[{', '.join(inner)}]" if draw < 0.985 else "{" + ", ".join(f'"{n}x": {v}' for n, v in enumerate(inner)) + "}"
    )


def messages(random: Random, count: int) -> list[str]:
    """Messages of a topic whose fields have types of their own, most of the time."""
    usual = {f"f{n}": random.choice(SCALARS) for n in range(6)}
    usual["null"] = random.choice(SCALARS)
    usual["o"] = f'{{"a": {random.choice(SCALARS)}, "end": {{"b-c": {random.choice(SCALARS)}}}}}'
    usual["l"] = f"[{random.choice(SCALARS)}, {random.choice(SCALARS)}]"
    usual["r"] = f'[{{"when": {random.choice(SCALARS)}, "n": {random.choice(SCALARS)}}}]'
    made = []
    for _ in range(count):
        fields = (f'"{name}": {value(random, v)}' for name, v in usual.items() if random.random() < 0.95)
        made.append("{" + ", ".join(fields) + "}")
    return [*made, "", "{", "[1]", made[0] + ","]


def foretold(message: str, record: Any) -> tuple[str, str | None] | None:
    try:
        found = misfit(json_object(message.encode()), record)
    except NoObject as refused:
        return str(refused), None
    return (found[0], found[1] or None) if found else None


def objects(texts: list[str]) -> list[dict[str, Any]]:
    found = []
    for text in texts:
        try:
            found.append(json_object(text.encode()))
        except NoObject:
            continue
    return found


@pytest.mark.parametrize("topic", range(2))
def test_the_decoder_condemns_just_the_messages_that_were_foretold(
    spark: SparkSession, pytestconfig: pytest.Config, topic: int
) -> None:
    seed = 10 * pytestconfig.getoption("--seed") + topic
    texts = list(dict.fromkeys(messages(Random(seed), 200)))
    record = record_of(seen_in(objects(texts)))
    ddl = "\n".join(ddl_lines(record, messages=len(texts)))
    verdicts = verdicts_of(spark, Json(), texts, ddl=ddl)

    said = {text: foretold(text, record) for text in texts}
    found = {text: None if verdicts[text].decoded else (verdicts[text].reason, verdicts[text].field) for text in texts}
    differ = {text: (said[text], found[text]) for text in texts if said[text] != found[text]}
    assert not differ, (
        f"--seed {pytestconfig.getoption('--seed')}: {len(differ)}, first {next(iter(differ.items()))}\n{ddl}"
    )
    assert any(said.values()) and not all(said.values())


def test_lines_that_make_a_record_of_csv_are_decoded_by_it(spark: SparkSession) -> None:
    random = Random(5)
    written = '1 | -2 | 1.5 | 1.50 | 007 | +1 | 1e3 |  | "" | x | "a;b" | "say ""x""" | true | TRUE | 2026-03-01'
    written += " | 2026-03-01T10:00:00Z | 2026-02-30 | NaN | 9223372036854775808 | -0 | 1. | '"
    texts = [*written.split(" | "), " 1", "2 "]
    columns = [[t] for t in texts] + [random.sample(texts, 2) for _ in range(6)]
    lines = list(dict.fromkeys(";".join(random.choice(column) for column in columns) for _ in range(40)))
    rows = [csv_lines.columns(line, ";") for line in lines]
    record = csv_lines.record_of(rows)
    verdicts = verdicts_of(spark, Csv(";"), lines, ddl="\n".join(ddl_lines(record, messages=len(rows))))

    assert {len(row) for row in rows} == {len(columns)}
    assert [line for line in lines if not verdicts[line].decoded] == []
    for line, row in zip(lines, rows, strict=True):
        decoded = json.loads(verdicts[line].record or "{}")
        strings = [name for name, declared in record.fields.items() if declared.ddl == "string"]  # type: ignore[union-attr]
        given = dict(zip(record.fields, row, strict=True))
        assert {name: decoded.get(name) for name in strings} == {name: given[name] for name in strings}


def test_dates_are_those_that_spark_makes_of_texts_and_numbers(spark: SparkSession) -> None:
    texts = [text.strip('"') for text in SCALARS if text.startswith('"2026')]
    texts += [
        "2026-03-01T23:30:00-0100",
        "2026-03-01T00:30:00+05:30",
        "2026-03-01T00:30:00+18",
        "2026-03-01 24:00",
        "2026-03-01T00:30Z",
        "2026-03-01T00:30+01:00",
        "soon",
    ]
    texts += ["2026-03-01T10:00:00+19:00", "2026-03-01T10:00:60Z", "0001-01-01T00:00:00.9999999Z", "2026-03-01T10:00"]
    numbers = [(1_772_323_200, "seconds"), (1_772_323_199_999, "millis"), (1_772_323_200_000_000_123, "nanos")]
    made = spark.createDataFrame([(text,) for text in texts], "v string")
    found = [row[0] for row in made.selectExpr("to_date(try_to_timestamp(v))").collect()]
    converted = [sql_of_number(str(n), unit, whole=True) for n, unit in numbers]  # type: ignore[arg-type]
    dates = spark.range(1).selectExpr(*(f"to_date({sql})" for sql in converted)).collect()[0]

    told_dates = [moment.date if (moment := told(text)) else None for text in texts]
    assert dict(zip(texts, told_dates, strict=True)) == dict(zip(texts, found, strict=True))
    moments = [moment_of(n, unit) for n, unit in numbers]  # type: ignore[arg-type]
    assert [moment and moment.date() for moment in moments] == list(dates)
