"""Expressions of Spark's Catalyst that SQL has no name for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def try_eval(spark: SparkSession, sql: str) -> Column:
    """The expression, null where it raises: what ``try_divide`` and its kin are made of."""
    return _column(spark, _catalyst(spark).TryEval(_parsed(spark, sql)))


def is_ascii(spark: SparkSession, text: str) -> Column:
    """Whether text (Spark SQL of type string) is ASCII and so valid UTF-8, told faster than by ``is_valid_utf8``."""
    jvm: Any = spark._jvm
    boolean, none = jvm.org.apache.spark.sql.types.DataType.fromDDL("boolean"), jvm.PythonUtils.toSeq([])
    invoke = _catalyst(spark).objects.Invoke
    return _column(spark, invoke(_parsed(spark, text), "isFullAscii", boolean, none, none, True, True, True))


def _catalyst(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.expressions


def _parsed(spark: SparkSession, sql: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column

    jvm: Any = spark._jvm
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
