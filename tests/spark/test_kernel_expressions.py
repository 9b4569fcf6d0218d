"""Expressions of documents that the kernel evaluates: what Spark gives, whatever the text, and Spark's errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kdi_assets.runtime.spark_internals import analysed_plan, with_kernel_expressions
from kdi_assets.streams.rules.evaluate import attempt
from tests.formats.plain_and_hostile import Texts, dates, times, urls

SEED, COUNT = 20261128, 100_000
URLS = [f"parse_url(t, '{part}')" for part in ("HOST", "PATH", "QUERY", "FILE", "REF", "PROTOCOL", "AUTHORITY")]
DATES = ["to_date(t)", "CAST(t AS DATE)", "date(t)", "to_date(substr(t, 1, 10))", "to_date(substring(t, 1, 10))"]
TIMES = ["CAST(t AS TIMESTAMP)", "to_timestamp(t)", "timestamp(t)"]
LEFT_TO_SPARK = [
    "parse_url(t, 'USERINFO')",
    "parse_url(t, 'host')",
    "parse_url(t, t)",
    "parse_url(t, NULL)",
    "parse_url(t, 'QUERY', 'k')",
    "try_parse_url(t, 'HOST')",
    "try_cast(t AS DATE)",
    "to_date(t, 'yyyy-MM-dd')",
    "try_cast(t AS TIMESTAMP)",
    "to_timestamp(t, 'yyyy')",
    "CAST(t AS TIMESTAMP_NTZ)",
    "CAST(timestamp_millis(1) AS DATE)",
]


@pytest.fixture(params=["true", "false"], ids=["ANSI", "not ANSI"])
def _ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.set("spark.sql.ansi.enabled", str(before))


@pytest.mark.usefixtures("_ansi")
@pytest.mark.parametrize(
    ("make", "every"), [(urls, URLS), (dates, DATES), (times, TIMES)], ids=["urls", "dates", "times"]
)
def test_the_kernel_gives_what_spark_gives_whatever_the_text(
    spark: SparkSession, make: Callable[[int, int], Texts], every: list[str]
) -> None:
    """Purpose: a faster expression must change no row and no verdict.
    Procedure: evaluate each expression over 100,000 texts by Spark, and by the kernel; an error counts as a value.
    Pass: the same value or error for every text; more than a quarter have a value.
    """
    texts = spark.createDataFrame(list(enumerate(make(SEED, COUNT))), "n int, t string").repartition(4)
    of_spark = texts.select("n", "t", *(attempt(spark, sql).alias(sql) for sql in every))

    of_kernel = with_kernel_expressions(of_spark)
    different = of_spark.exceptAll(of_kernel).orderBy("n").take(3)

    assert different == [], f"Spark's, seed {SEED}"
    assert of_kernel.where(F.col(f"`{every[0]}`.v").isNotNull()).count() > COUNT / 4


@pytest.mark.parametrize("sql", [*URLS, *DATES, *TIMES])
def test_the_kernel_evaluates_the_expression(spark: SparkSession, sql: str) -> None:
    assert _calls_kernel(_one(spark, "x").select(F.expr(sql)))


@pytest.mark.parametrize("sql", LEFT_TO_SPARK)
def test_spark_evaluates_what_the_kernel_does_not_have(spark: SparkSession, sql: str) -> None:
    assert not _calls_kernel(_one(spark, "x").select(F.expr(sql)))


@pytest.mark.parametrize("text", ["http://h/%", "2026-02-30", "2025-02-29", "2026-13-01T10:00", "2026-01-00", "x"])
@pytest.mark.parametrize("sql", ["parse_url(t, 'PATH')", "to_date(t)", "to_date(substr(t, 1, 10))", "to_timestamp(t)"])
def test_an_error_is_sparks_own_word_for_word(spark: SparkSession, sql: str, text: str) -> None:
    frame = _one(spark, text).select(F.expr(sql))

    assert _outcome(with_kernel_expressions(frame)) == _outcome(frame)


def test_a_session_of_another_time_zone_asks_spark_for_times(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert not _calls_kernel(_one(spark, "x").select(F.expr(TIMES[0])))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def _one(spark: SparkSession, text: str) -> DataFrame:
    return spark.createDataFrame([(text,)], "t string")


def _calls_kernel(frame: DataFrame) -> bool:
    plan = str(analysed_plan(with_kernel_expressions(frame)).toString())
    return any(f"{kernel}.of(" in plan for kernel in ("UrlPart", "DateOfText", "TimeOfText"))


def _outcome(frame: DataFrame) -> str:
    try:
        return str(frame.collect())
    except PySparkException as failed:
        return f"{failed.getCondition()}: {failed.getMessage()}"
