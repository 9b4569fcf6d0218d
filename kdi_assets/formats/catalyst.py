"""Catalyst expressions that Spark SQL has no name for: ``TryEval``, and calls of the kernel (``kdi_assets/jvm``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType


CALLED_WITHOUT_PARENTHESES = frozenset({"current_date", "current_timestamp", "current_user", "localtimestamp", "user"})
"""Functions that Spark's parser takes for names."""


def try_eval(spark: SparkSession, sql: str) -> Column:
    """The expression, null where it raises; Spark builds ``try_divide`` and its like from this."""
    return _column(spark, _expressions(spark).TryEval(_parsed(spark, sql)))


def kernel_call(
    spark: SparkSession, class_: str, method: str, returns: str | DataType, *arguments: Any, counts: bool = False
) -> Column:
    """Call a static method of the kernel for every row; a null argument gives null.

    Args:
        class_: Its full name.
        returns: The type of the result.
        arguments: Spark SQL, or an instance of the class, which every call gets.
        counts: The method counts its calls: Spark also calls it for nulls, and neither skips nor repeats a call.
    """
    jvm: Any = spark._jvm
    kernel = jvm.java.lang.Class.forName(class_, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    instance = jvm.org.apache.spark.sql.types.ObjectType(kernel)
    literal, to_seq = _expressions(spark).Literal, jvm.PythonUtils.toSeq
    passed = [_parsed(spark, a) if isinstance(a, str) else literal.fromObject(a, instance) for a in arguments]
    of_class = kernel, jvm_type(spark, returns), method, to_seq(passed), to_seq([])
    call = _expressions(spark).objects.StaticInvoke(*of_class, *[not counts] * 3, jvm.scala.Option.empty())
    return _column(spark, call)


def referenced_names(spark: SparkSession, sql: str) -> set[str]:
    """The names of columns and fields in an expression, with dots; variables of its lambdas are not among them.

    Names inside a lambda's body are missing as well: Spark's parser does not tell them from its variables.
    """
    leaves = _parsed(spark, sql).collectLeaves()
    found = [leaves.apply(number) for number in range(leaves.size())]
    names = {leaf.name() for leaf in found if leaf.getClass().getSimpleName() == "UnresolvedAttribute"}
    return {name for name in names if name.lower() not in CALLED_WITHOUT_PARENTHESES}


def jvm_type(spark: SparkSession, type_: str | DataType) -> Any:
    """The JVM's data type for DDL or a type of PySpark."""
    jvm: Any = spark._jvm
    types = jvm.org.apache.spark.sql.types.DataType
    return types.fromDDL(type_) if isinstance(type_, str) else types.fromJson(type_.json())


def _expressions(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.expressions


def _parsed(spark: SparkSession, sql: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column

    jvm: Any = spark._jvm
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
