"""Expressions of Spark's Catalyst that SQL has no name for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

_BYTES = "java.io.ByteArrayInputStream"
_GUNZIP = "org.apache.commons.compress.compressors.gzip.GzipCompressorInputStream"
_ZSTD = "com.github.luben.zstd.Zstd"


def try_eval(spark: SparkSession, sql: str) -> Column:
    """The expression, null where it raises: what ``try_divide`` and its kin are made of."""
    return _column(spark, _catalyst(spark).TryEval(_parsed(spark, sql)))


def is_ascii(spark: SparkSession, text: str) -> Column:
    """Whether text (Spark SQL of type string) is ASCII and so valid UTF-8, told faster than by ``is_valid_utf8``."""
    return _column(spark, _invoke(spark, _parsed(spark, text), "isFullAscii", _type(spark, "boolean")))


def from_kernel(
    spark: SparkSession, called: str, method: str, argument: str, *, gives: str | DataType, built_with: Sequence[Any]
) -> Column:
    """A static method of a class of the kernel, of an argument (Spark SQL) and an instance of that class.

    Args:
        gives: The type of the result.
        built_with: What the instance is made of; types of PySpark become those of the JVM.
    """
    from pyspark.sql.types import DataType

    jvm: Any = spark._jvm
    parts = (_type(spark, part) if isinstance(part, DataType) else part for part in built_with)
    constant = _catalyst(spark).Literal.fromObject(getattr(jvm, called)(*parts), _object(spark, called))
    return _column(spark, _static(spark, called, method, gives, _parsed(spark, argument), constant))


def counted_by(spark: SparkSession, called: str, method: str, counter: Any, arguments: Sequence[str]) -> Column:
    """A static method of a class of the kernel that counts in an instance of it; it is called once for every row.

    Args:
        counter: The instance, one of Spark's accumulators.
        arguments: Spark SQL of what the method takes behind it.
    """
    parsed = (_parsed(spark, sql) for sql in arguments)
    constant = _catalyst(spark).Literal.fromObject(counter, _object(spark, called))
    return _column(spark, _static(spark, called, method, "boolean", constant, *parsed, counts=True))


def gunzipped(spark: SparkSession, value: str, *, at_most: int) -> Column:
    """What gzip made of it (Spark SQL of type binary), to the end of its last member; null where it is no gzip.

    Whoever holds more comes back cut off behind ``at_most`` bytes. A reader that ends with the stream gives its native
    memory back at once; one that fails or is cut off, with Java's next collection.
    """
    # To the end: after the first member, other readers take what follows for padding and drop it.
    to_the_end = _parsed(spark, "true")
    reader = _new(spark, _GUNZIP, _new(spark, _BYTES, _parsed(spark, value)), to_the_end)
    read = _invoke(spark, reader, "readNBytes", _type(spark, "binary"), _parsed(spark, str(at_most)))
    return _column(spark, _catalyst(spark).TryEval(read))


def unzstd(spark: SparkSession, value: str, size: str) -> Column:
    """What zstd made of it (Spark SQL of type binary), null where it is no zstd or holds more than ``size`` bytes."""
    read = _static(spark, _ZSTD, "decompress", "binary", _parsed(spark, value), _parsed(spark, size))
    return _column(spark, _catalyst(spark).TryEval(read))


def zstd_size(spark: SparkSession, value: str) -> Column:
    """How many bytes the first frame of zstd (Spark SQL of type binary) says it holds.

    Negative if it does not say; null if it is cut off before that.
    """
    read = _static(spark, _ZSTD, "getFrameContentSize", "bigint", _parsed(spark, value))
    return _column(spark, _catalyst(spark).TryEval(read))


def _static(
    spark: SparkSession,
    class_: str,
    function: str,
    type_: str | DataType,
    *arguments: Any,
    counts: bool = False,
) -> Any:
    """A call of a static method of Java: one that counts is called for nulls, and neither left out nor doubled."""
    jvm: Any = spark._jvm
    seq, pure = jvm.PythonUtils.toSeq, not counts
    of_class = _class(spark, class_), _type(spark, type_), function, seq(list(arguments)), seq([])
    return _catalyst(spark).objects.StaticInvoke(*of_class, pure, pure, pure, jvm.scala.Option.empty())


def _new(spark: SparkSession, class_: str, *arguments: Any) -> Any:
    """A stream of Java's that is made anew for every row."""
    jvm: Any = spark._jvm
    seq, type_ = jvm.PythonUtils.toSeq, _object(spark, "java.io.InputStream")
    of_class = _class(spark, class_), seq(list(arguments)), seq([])
    return _catalyst(spark).objects.NewInstance(*of_class, True, type_, jvm.scala.Option.empty())


def _invoke(spark: SparkSession, target: Any, method: str, type_: Any, *arguments: Any) -> Any:
    """A call of a method of Java."""
    jvm: Any = spark._jvm
    seq = jvm.PythonUtils.toSeq
    return _catalyst(spark).objects.Invoke(target, method, type_, seq(list(arguments)), seq([]), True, True, True)


def _type(spark: SparkSession, type_: str | DataType) -> Any:
    """The JVM's type, of DDL or of PySpark's."""
    jvm: Any = spark._jvm
    types = jvm.org.apache.spark.sql.types.DataType
    return types.fromDDL(type_) if isinstance(type_, str) else types.fromJson(type_.json())


def _object(spark: SparkSession, class_: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.types.ObjectType(_class(spark, class_))


def _class(spark: SparkSession, called: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.java.lang.Class.forName(called, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())


def _catalyst(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.expressions


def _parsed(spark: SparkSession, sql: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column

    return Column(_expression_utils(spark).column(expression))


def _expression_utils(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.classic.ExpressionUtils
