"""Spark's internals, called over py4j: plans, Catalyst's expressions, classes of the kernel, Avro's schemas.

Spark may change them without notice. ``tests/spark/test_internals.py`` asks a session for every name that is used here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


CALLED_WITHOUT_PARENTHESES = frozenset({"current_date", "current_timestamp", "current_user", "localtimestamp", "user"})
"""Functions that Spark's parser takes for names."""


def jvm_view(spark: SparkSession) -> Any:
    """py4j's view of the JVM, where an attribute is a package or a class; only for adapters like this one."""
    return spark._jvm


def jvm_session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def jvm_context(spark: SparkSession) -> Any:
    return cast(Any, spark.sparkContext)._jsc.sc()


def hadoop_setting(spark: SparkSession, name: str) -> str:
    """A setting of Hadoop's configuration, as the files of ``HADOOP_CONF_DIR`` and Spark's settings make it."""
    return str(jvm_context(spark).hadoopConfiguration().get(name))


def cancel_without_executor(spark: SparkSession, seconds: int, seconds_again: int, reason: str) -> None:
    """Let the kernel cancel jobs of the JVM that wait too long for an executor (``kdi.runtime.ExecutorWatch``)."""
    jvm_view(spark).kdi.runtime.ExecutorWatch.begin(jvm_context(spark), seconds, seconds_again, reason)


def jvm_frame(rows: DataFrame) -> Any:
    return rows._jdf


def frame_of(spark: SparkSession, rows: Any) -> DataFrame:
    """PySpark's DataFrame of the JVM's."""
    from pyspark.sql import DataFrame

    return DataFrame(rows, spark)


def frame_of_internal_rows(spark: SparkSession, rows: Any, schema: Any) -> DataFrame:
    """A DataFrame of an RDD of Catalyst's rows."""
    return frame_of(spark, jvm_session(spark).internalCreateDataFrame(rows, schema, False))


def empty_frame(spark: SparkSession, columns: str | StructType) -> DataFrame:
    """A DataFrame without rows; PySpark's ``createDataFrame`` would load pandas, half a second in every process.

    Args:
        columns: Their types, or Spark DDL.
    """
    no_rows = jvm_view(spark).java.util.ArrayList()
    return frame_of(spark, jvm_session(spark).createDataFrame(no_rows, jvm_type(spark, columns)))


def unread_frame(spark: SparkSession, columns: StructType, number: int) -> DataFrame:
    """A DataFrame that Spark plans and cannot read: whoever asks for its rows gets an error, without a job.

    Args:
        number: Of the frame. Spark takes frames of one number and the same types for one, and reads it once.
    """
    sql, none = jvm_view(spark).org.apache.spark.sql, scala_option(spark)
    of_columns = frame_of_internal_rows(spark, None, jvm_type(spark, columns))
    node = jvm_frame(of_columns).queryExecution().analyzed()
    numbered = sql.catalyst.plans.physical.UnknownPartitioning(number)
    of_session, ordering = jvm_session(spark), node.outputOrdering()
    plan = sql.execution.LogicalRDD(node.output(), None, numbered, ordering, False, none, of_session, none, none)
    return frame_of(spark, sql.classic.Dataset.ofRows(of_session, plan))


def scala_option(spark: SparkSession, value: Any = None) -> Any:
    """``Some`` of the value; ``None`` is Scala's."""
    return jvm_view(spark).scala.Option.apply(value)


def scala_seq(spark: SparkSession, items: list[Any]) -> Any:
    return jvm_view(spark).PythonUtils.toSeq(items)


def listed(sequence: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [sequence.apply(i) for i in range(sequence.size())]


def scala_map(spark: SparkSession, items: dict[str, str]) -> Any:
    return jvm_view(spark).PythonUtils.toScalaMap(items)


def jvm_cpu_seconds(spark: SparkSession) -> float:
    """CPU seconds that the session's JVM has used since its start; 0 if the system does not tell."""
    return float(jvm_view(spark).kdi.runtime.CpuSeconds.ofJvm())


def thread_cpu_seconds(spark: SparkSession) -> float:
    """CPU seconds of the JVM's thread that serves the calling thread, since its start."""
    return float(jvm_view(spark).kdi.runtime.CpuSeconds.ofThread())


class TaskSeconds:
    """CPU seconds of the tasks of a session's jobs that ended since its creation, wherever they ran.

    Args:
        group: The group of the jobs, beside the session's own tag, which jobs in other threads have instead.
    """

    def __init__(self, spark: SparkSession, group: str | None) -> None:
        tag = jvm_session(spark).sessionJobTag()
        self._tasks = jvm_view(spark).kdi.runtime.CpuSeconds(jvm_context(spark), tag, group)

    def seconds(self) -> float:
        """The sum so far; Spark keeps the last 50 jobs and stages, older ones must have been asked for."""
        return float(self._tasks.ofTasks())


def resolved_by_ivy(jvm: Any, coordinates: Collection[str]) -> list[str]:
    """Paths of the files that Spark's Ivy resolves; settings and mirrors are Spark's (``spark.jars.ivySettings``).

    Args:
        jvm: py4j's view of a JVM, which needs no session.
    """
    client = jvm.org.apache.spark.util.DependencyUtils
    ivy = client.getIvyProperties()
    settings = jvm.scala.Option.apply(ivy.ivySettingsPath())
    paths = client.resolveMavenDependencies(
        False, "", ",".join(coordinates), ivy.repositories(), ivy.ivyRepoPath(), settings
    )
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(paths))


def jvm_type(spark: SparkSession, type_: str | DataType) -> Any:
    """The JVM's data type for DDL or a type of PySpark."""
    types = jvm_view(spark).org.apache.spark.sql.types.DataType
    return types.fromDDL(type_) if isinstance(type_, str) else types.fromJson(type_.json())


def ddl_of(spark: SparkSession, struct: StructType) -> str:
    """The columns of a struct as DDL."""
    return str(jvm_type(spark, struct).toDDL())


def try_eval(spark: SparkSession, sql: str) -> Column:
    """The expression, null where it raises; Spark builds ``try_divide`` and its like from this."""
    return _column(spark, _expressions(spark).TryEval(_parsed(spark, sql)))


def kernel_object(spark: SparkSession, class_: str, *arguments: Any) -> Any:
    """An instance of a class of the kernel (``kdi_assets/jvm``), by its full name."""
    return getattr(jvm_view(spark), class_)(*arguments)


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
    jvm = jvm_view(spark)
    kernel = jvm.java.lang.Class.forName(class_, False, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    instance = jvm.org.apache.spark.sql.types.ObjectType(kernel)
    literal, to_seq = _expressions(spark).Literal, jvm.PythonUtils.toSeq
    passed = [_parsed(spark, a) if isinstance(a, str) else literal.fromObject(a, instance) for a in arguments]
    of_class = kernel, jvm_type(spark, returns), method, to_seq(passed), to_seq([])
    call = _expressions(spark).objects.StaticInvoke(*of_class, *[not counts] * 3, jvm.scala.Option.empty())
    return _column(spark, call)


def with_kernel_expressions(rows: DataFrame) -> DataFrame:
    """The same rows; the kernel evaluates the expressions that it has, too (``kdi.expressions.KernelExpressions``)."""
    spark = rows.sparkSession
    return frame_of(spark, jvm_view(spark).kdi.expressions.KernelExpressions.replacedIn(jvm_frame(rows)))


def referenced_names(spark: SparkSession, sql: str) -> set[str]:
    """The names of columns and fields in an expression, with dots; variables of its lambdas are not among them.

    Names inside a lambda's body are missing as well: Spark's parser does not tell them from its variables.
    """
    found = listed(_parsed(spark, sql).collectLeaves())
    names = {leaf.name() for leaf in found if leaf.getClass().getSimpleName() == "UnresolvedAttribute"}
    return {name for name in names if name.lower() not in CALLED_WITHOUT_PARENTHESES}


def written_again(spark: SparkSession, sql: str) -> str:
    """The expression as Spark writes it: without comments and with one form of strings."""
    return str(_parsed(spark, sql).sql())


def _expressions(spark: SparkSession) -> Any:
    return jvm_view(spark).org.apache.spark.sql.catalyst.expressions


def _parsed(spark: SparkSession, sql: str) -> Any:
    return jvm_session(spark).sessionState().sqlParser().parseExpression(sql)


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column

    return Column(jvm_view(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def plan_physically(rows: DataFrame) -> None:
    """Let Spark plan the query, without running it: some sources refuse only then."""
    jvm_frame(rows).queryExecution().sparkPlan()


def analysed_plan(rows: DataFrame) -> Any:
    """Spark's plan of the rows: its top node."""
    return jvm_frame(rows).queryExecution().analyzed()


def has_window(rows: DataFrame) -> bool:
    return "Window [" in str(analysed_plan(rows).toString())


def last_expression(rows: DataFrame) -> Any:
    """The expression of the last column."""
    return analysed_plan(rows).expressions().last()


def is_deterministic(expression: Any) -> bool:
    """Whether an expression gives the same each time."""
    return bool(expression.deterministic())


def has_subquery(spark: SparkSession, expression: Any) -> bool:
    return bool(expression.containsPattern(_patterns(spark).PLAN_EXPRESSION()))


def has_clock(spark: SparkSession, expression: Any) -> bool:
    """Whether it has one of the time now, of the user, or of the session."""
    return bool(expression.containsPattern(_patterns(spark).CURRENT_LIKE()))


def _patterns(spark: SparkSession) -> Any:
    return jvm_view(spark).org.apache.spark.sql.catalyst.trees.TreePattern


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of Spark's analysed plan.

    Attributes:
        has_subqueries: Whether it, or a node below it, has some.
        is_deterministic: The same of all expressions.
        columns: Name and id of each column.
        made: The id of each column that it makes, with those of the columns that it is made of.
        grouped_by: The ids of the columns that groups are made by; ``None``: it makes no groups.
        query_of_with: The id of a query of WITH; ``None``: it is none.
        reads_with: The id of the query of WITH that it reads; ``None``: it reads none.
    """

    name: str
    has_children: bool
    has_subqueries: bool
    is_deterministic: bool
    columns: Sequence[tuple[str, int]]
    made: Sequence[tuple[int, Sequence[int]]]
    grouped_by: Sequence[int] | None
    query_of_with: int | None
    reads_with: int | None


def plan_nodes(rows: DataFrame) -> list[PlanNode]:
    """The nodes of Spark's plan of the rows, the top one first; one call, where each fact of each would be one."""
    described = jvm_view(rows.sparkSession).kdi.expressions.PlanNodes.toJson(jvm_frame(rows))
    return [PlanNode(**node) for node in json.loads(described)]


def columns_of_ctes(nodes: Sequence[PlanNode]) -> dict[int, int]:
    """The ids that columns have in the query of a CTE, by those that they have where it is read."""
    queries = {node.query_of_with: node.columns for node in nodes if node.query_of_with is not None}
    return {
        read_id: query_id
        for node in nodes
        if node.reads_with is not None
        for (_, read_id), (_, query_id) in zip(node.columns, queries.get(node.reads_with, ()), strict=False)
        if read_id != query_id
    }


@dataclass(frozen=True, slots=True)
class PlanLeaf:
    """What Spark reads of one relation.

    Attributes:
        name: Of the node.
        columns: Name with id, as in conditions, and metadata as JSON.
        conditions: What Spark asks of each row before it does anything else with it, in its own words.
    """

    name: str
    columns: Sequence[tuple[str, str]]
    conditions: Sequence[str]


def optimised_leaves(rows: DataFrame) -> list[PlanLeaf]:
    """The leaves of the plan as Spark's optimizer makes it, those of subqueries included; nothing is read."""
    spark, found = rows.sparkSession, list[PlanLeaf]()
    plan = jvm_frame(rows).queryExecution().optimizedPlan()
    # The first time makes joins of EXISTS and of WITH, after it handed conditions from one side of a join to the other.
    again = jvm_view(spark).org.apache.spark.sql.classic.Dataset.ofRows(jvm_session(spark), plan)
    _add_leaves(again.queryExecution().optimizedPlan(), (), found)
    return found


def _add_leaves(node: Any, conditions: tuple[str, ...], found: list[PlanLeaf]) -> None:
    name, children = str(node.nodeName()), listed(node.children())
    for subquery in listed(node.subqueries()):
        _add_leaves(subquery, (), found)
    if name == "Filter":
        conditions += tuple(_conjuncts(node.condition()))
    elif name != "Project":  # which computes columns, and hands on each row
        conditions = conditions if not children else ()
    if not children:
        columns = [(str(c.toString()), str(c.metadata().json())) for c in listed(node.output())]
        found.append(PlanLeaf(name, columns, conditions))
    for child in children:
        _add_leaves(child, conditions, found)


def _conjuncts(condition: Any) -> list[str]:
    if condition.getClass().getSimpleName() == "And":
        return _conjuncts(condition.left()) + _conjuncts(condition.right())
    return [str(condition.toString())]


def rows_ask_clock(rows: DataFrame) -> bool:
    """Whether an expression of the rows is one of the time now, of the user, or of the session."""
    return bool(jvm_view(rows.sparkSession).kdi.expressions.PlanNodes.askClock(jvm_frame(rows)))


def columns_of_bytes_as_text(rows: DataFrame) -> set[str]:
    """The columns that nodes of the rows' plan make by a cast of bytes to text, which does not look at the bytes."""
    return set(json.loads(jvm_view(rows.sparkSession).kdi.expressions.PlanNodes.ofBytesAsText(jvm_frame(rows))))


def avro_type(schema: str) -> Any:
    """Spark's type for an Avro schema, everything nullable."""
    from pyspark.sql.types import _parse_datatype_json_string

    declared = _active_jvm().org.apache.spark.sql.avro.SchemaConverters.toSqlType(_avro_schema(schema)).dataType()
    return _parse_datatype_json_string(declared.asNullable().json())


def avro_in_kernel(schema: str) -> bool:
    """Whether the kernel reads all types of a schema; Spark must have a type for it."""
    return bool(getattr(_active_jvm(), "kdi.avro.AvroDecoder").reads(schema))


def avro_fingerprint(schema: str) -> bytes:
    """CRC-64-AVRO of the schema's canonical form; names may be any."""
    anything = _active_jvm().org.apache.avro.NameValidator.NO_VALIDATION
    parsed = _active_jvm().org.apache.avro.Schema.Parser(anything).parse(schema)
    return bytes(_active_jvm().org.apache.avro.SchemaNormalization.parsingFingerprint("CRC-64-AVRO", parsed))


def avro_incompatibilities(reader: str, writer: str) -> list[str] | None:
    """Why datums of the writer's schema cannot be read by the reader's; ``None`` if they can.

    Raises:
        Py4JJavaError: Avro refuses a schema, or a default value that the reader's needs.
    """
    avro, (becomes, written) = _active_jvm().org.apache.avro, (_avro_schema(text) for text in (reader, writer))
    found = avro.SchemaCompatibility.checkReaderWriterCompatibility(becomes, written)
    if str(found.getType().toString()) == "COMPATIBLE":
        # It reads the default values that it needs, and an enum's may be none of its symbols.
        avro.io.DecoderFactory.get().resolvingDecoder(written, becomes, None)
        return None
    return [f"{i.getLocation()}: {i.getMessage()}" for i in found.getResult().getIncompatibilities()]


def _avro_schema(schema: str) -> Any:
    return _active_jvm().org.apache.avro.Schema.Parser().parse(schema)


def _active_jvm() -> Any:
    from pyspark import SparkContext

    return cast(Any, SparkContext._active_spark_context)._jvm
