"""Expressions of Spark's Catalyst that SQL has no name for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_GUNZIP = "org.apache.commons.compress.compressors.gzip.GzipCompressorInputStream"
_STRINGS = "org.apache.commons.lang3.StringUtils"
_VARIANTS = "org.apache.spark.sql.catalyst.expressions.variant.VariantExpressionEvalUtils"
_ZSTD = "com.github.luben.zstd.Zstd"


def try_eval(spark: SparkSession, sql: str) -> Column:
    """The expression, null where it raises: what ``try_divide`` and its kin are made of."""
    return _column(spark, _catalyst(spark).TryEval(_parsed(spark, sql)))


def is_ascii(spark: SparkSession, text: str) -> Column:
    """Whether text (Spark SQL of type string) is ASCII and so valid UTF-8, told faster than by ``is_valid_utf8``."""
    jvm: Any = spark._jvm
    boolean, none = jvm.org.apache.spark.sql.types.DataType.fromDDL("boolean"), jvm.PythonUtils.toSeq([])
    invoke = _catalyst(spark).objects.Invoke
    return _column(spark, invoke(_parsed(spark, text), "isFullAscii", boolean, none, none, True, True, True))


def bloom_filter(spark: SparkSession, number: str, *, items: int, bits: int) -> Column:
    """Aggregate of a Bloom filter of numbers (Spark SQL of type bigint), as binary; null of none.

    Args:
        items: For how many it is made; it takes any number, and then lets more of the others pass.
        bits: Its size.
    """
    jvm: Any = spark._jvm
    aggregate = jvm.org.apache.spark.sql.catalyst.expressions.aggregate.BloomFilterAggregate
    sizes = [_parsed(spark, f"{size}L") for size in (items, bits)]
    return _column(spark, aggregate(_parsed(spark, number), *sizes, 0, 0).toAggregateExpression())


def might_contain(spark: SparkSession, bloom: Column, number: str) -> Column:
    """Whether a number (Spark SQL of type bigint) may be one of those in a Bloom filter; true for all that are.

    Args:
        bloom: What ``bloom_filter`` gave, as a scalar subquery.
    """
    held = _expression_utils(spark).expression(bloom._jc)
    return _column(spark, _catalyst(spark).BloomFilterMightContain(held, _parsed(spark, number)))


def occurrences(spark: SparkSession, text: str, part: str) -> Column:
    """How often a part stands in text (Spark SQL of type string), told at the pace of Java's own search."""
    jvm: Any = spark._jvm
    seq, none = jvm.PythonUtils.toSeq, jvm.PythonUtils.toSeq([])
    chars = jvm.org.apache.spark.sql.types.ObjectType(_class(spark, "java.lang.CharSequence"))
    objects, int_ = _catalyst(spark).objects, jvm.org.apache.spark.sql.types.DataType.fromDDL("int")
    within = objects.Invoke(_parsed(spark, text), "toString", chars, none, none, True, True, True)
    sought = _catalyst(spark).Literal.fromObject(part, chars)
    owner, option = _class(spark, _STRINGS), jvm.scala.Option.empty()
    return _column(
        spark,
        objects.StaticInvoke(owner, int_, "countMatches", seq([within, sought]), none, True, False, True, option),
    )


def parsed_json(spark: SparkSession, text: str) -> Column:
    """A document as a variant, null if it is none; of names that stand twice the last counts, as in ``from_json``."""
    jvm: Any = spark._jvm
    of_spark = jvm.org.apache.spark.sql.types.DataType
    arguments = [_parsed(spark, sql) for sql in (text, "true", "false", "true")]
    seq, none, option = jvm.PythonUtils.toSeq, jvm.PythonUtils.toSeq([]), jvm.scala.Option.empty()
    static, type_ = _catalyst(spark).objects.StaticInvoke, of_spark.fromDDL("variant")
    return _column(
        spark, static(_class(spark, _VARIANTS), type_, "parseJson", seq(arguments), none, True, True, True, option)
    )


def gunzipped(spark: SparkSession, value: str, *, at_most: int) -> Column:
    """What gzip made of it (Spark SQL of type binary), to the end of its last member; null where it is no gzip.

    Whoever holds more comes back cut off behind ``at_most`` bytes. A reader that ends with the stream gives its native
    memory back at once; one that fails or is cut off, with Java's next collection.
    """
    stream, of_bytes, gunzip = (
        _class(spark, called) for called in ("java.io.InputStream", "java.io.ByteArrayInputStream", _GUNZIP)
    )
    # To the end: after the first member, other readers take what follows for padding and drop it.
    to_the_end = _parsed(spark, "true")
    bytes_ = _new(spark, of_bytes, [_parsed(spark, value)], as_type=stream)
    reader = _new(spark, gunzip, [bytes_, to_the_end], as_type=stream)
    read = _invoke(spark, reader, "readNBytes", "binary", [_parsed(spark, str(at_most))])
    return _column(spark, _catalyst(spark).TryEval(read))


def unzstd(spark: SparkSession, value: str, size: str) -> Column:
    """What zstd made of it (Spark SQL of type binary), null where it is no zstd or holds more than ``size`` bytes."""
    return _column(spark, _catalyst(spark).TryEval(_zstd(spark, "decompress", "binary", [value, size])))


def zstd_size(spark: SparkSession, value: str) -> Column:
    """How many bytes the first frame of zstd (Spark SQL of type binary) says it holds.

    Negative if it does not say; null if it is cut off before that.
    """
    return _column(spark, _catalyst(spark).TryEval(_zstd(spark, "getFrameContentSize", "bigint", [value])))


def _zstd(spark: SparkSession, function: str, ddl: str, arguments: list[str]) -> Any:
    jvm: Any = spark._jvm
    seq, none = jvm.PythonUtils.toSeq, jvm.PythonUtils.toSeq([])
    type_ = jvm.org.apache.spark.sql.types.DataType.fromDDL(ddl)
    parsed = seq([_parsed(spark, argument) for argument in arguments])
    static = _catalyst(spark).objects.StaticInvoke
    return static(_class(spark, _ZSTD), type_, function, parsed, none, True, True, True, jvm.scala.Option.empty())


def _new(spark: SparkSession, class_: Any, arguments: list[Any], *, as_type: Any) -> Any:
    jvm: Any = spark._jvm
    type_ = jvm.org.apache.spark.sql.types.ObjectType(as_type)
    seq, none = jvm.PythonUtils.toSeq, jvm.PythonUtils.toSeq([])
    return _catalyst(spark).objects.NewInstance(class_, seq(arguments), none, True, type_, jvm.scala.Option.empty())


def _invoke(spark: SparkSession, target: Any, method: str, ddl: str, arguments: list[Any]) -> Any:
    jvm: Any = spark._jvm
    seq, none = jvm.PythonUtils.toSeq, jvm.PythonUtils.toSeq([])
    type_ = jvm.org.apache.spark.sql.types.DataType.fromDDL(ddl)
    return _catalyst(spark).objects.Invoke(target, method, type_, seq(arguments), none, True, True, True)


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
