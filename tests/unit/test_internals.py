"""What is not public of Spark, Delta, Kafka's source and Dagster is used by their adapters only, and known there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.jvm_symbols import JVM, PYSPARK

ROOT = Path(__file__).parents[2]
SPARK = {
    "kdi_assets/delta/internals.py": "Delta's log, transactions and actions",
    "kdi_assets/runtime/spark_internals.py": "the JVM of a session: plans, Catalyst, the kernel, Avro",
    "kdi_assets/runtime/gateway.py": "which JVM a process uses: class attributes of PySpark, and py4j's connection; "
    "they belong to no session, and a client of the warm driver must undo what PySpark does with them",
    "kdi_assets/runtime/jvm_names.py": "py4j's view, packages and classes of the JVM",
    "kdi_assets/runtime/yarn.py": "YARN's client in a JVM whose Spark does not answer yet",
    "kdi_assets/messages/kafka/reader.py": "the classes below Spark's Kafka source",
    "kdi_assets/messages/kinesis/reader.py": "the reader of shards",
}
DAGSTER = {
    "resources/dagster_internals.py": "Dagster's private modules",
    "resources/pooled_storage.py": "the engines of Dagster's storages in PostgreSQL",
}
PRIVATE = re.compile(
    r"_j(vm|sc|df|conf|schema|sparkSession)|_gateway(_client)?|_target_id|_accumulatorServer|_active_spark_context"
    r"|_(instantiated|active)Session|_get_j_spark_session_class|_ensure_initialized|internalCreateDataFrame"
)
PACKAGES = frozenset({"io", "java", "kdi", "org", "scala", "PythonUtils"})
"""First names of what py4j's view of the JVM has."""
OF_DAGSTER = re.compile(r"dagster(_\w+)?\._")
HINT = re.compile(rf"{PRIVATE.pattern}|\.({'|'.join(PACKAGES)})\b|{OF_DAGSTER.pattern}")
"""Only texts with one are parsed."""
NOT_OF_THE_JVM = frozenset({"sparkContext", "sparkSession", "defaultParallelism"})
"""Public names of PySpark that look like Java's."""


@pytest.mark.parametrize(
    "folder", ["kdi_assets", "resources", "sensors", "demo", "examples", "benchmarks", "supply_chain"]
)
def test_only_the_adapters_use_what_is_not_public(folder: str) -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / folder).rglob("*.py")}
    modules = {path: ast.parse(text) for path, text in texts.items() if HINT.search(text)}

    of_spark = {f"{path}: {name}" for path, m in modules.items() if path not in SPARK for name in private_names(m)}
    of_dagster = {f"{path}: {name}" for path, m in modules.items() if path not in DAGSTER for name in dagster_names(m)}

    assert of_spark | of_dagster == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("rows._jdf.queryExecution()", ["_jdf"]),
        ("SparkConf(_jvm=gateway.jvm)", ["_jvm"]),
        ("view.org.apache.spark.SparkContext", ["org"]),
        ("getattr(spark, '_jvm')", ["_jvm"]),
        ("from dagster._core import errors", ["dagster._core"]),
        ("import dagster_aws._utils", ["dagster_aws._utils"]),
        ("import_module('dagster._grpc.server')", ["dagster._grpc.server"]),
        ("spark.read.format('delta'); self._jvm_cpu(); import dagster", []),
    ],
)
def test_the_search_finds_what_is_not_public(source: str, found: list[str]) -> None:
    module = ast.parse(source)

    assert [*private_names(module), *dagster_names(module)] == found


@pytest.mark.parametrize("path", SPARK)
def test_every_name_of_java_in_an_adapter_is_one_that_the_jvm_is_asked_for(path: str) -> None:
    module = path.removesuffix(".py").replace("/", ".")

    unknown = {
        f"{function}: {name}"
        for function, node in functions(path).items()
        for name in java_names(node)
        if name not in parts(f"{module}:{function}")
    }

    assert unknown == set()


@pytest.mark.parametrize("function", sorted({*JVM, *PYSPARK}))
def test_the_users_of_a_name_use_it(function: str) -> None:
    module, _, name = function.partition(":")
    path = module.replace(".", "/") + ".py"

    used = ast.unparse(functions(path)[name])

    members = {re.split(r"[.$]", symbol.removesuffix(".<init>"))[-1] for symbol in symbols(function)}
    assert [member for member in members if not re.search(rf"\b{member}\b", used)] == []


def private_names(module: ast.AST) -> Iterator[str]:
    """Private names of PySpark and py4j in a module, and first names of what is in the JVM."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            yield node.attr
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr in PACKAGES:
            yield node.value.attr
        elif isinstance(node, ast.keyword) and node.arg and PRIVATE.fullmatch(node.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PRIVATE.fullmatch(node.value):
            yield node.value


def dagster_names(module: ast.AST) -> Iterator[str]:
    """Private modules of Dagster's packages that a module imports or names."""
    for node in ast.walk(module):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        yield from (name for name in names if OF_DAGSTER.match(name))


@cache
def functions(path: str) -> dict[str, ast.AST]:
    """The functions and classes of a module."""
    body = ast.parse((ROOT / path).read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def java_names(function: ast.AST) -> Iterator[str]:
    """Attributes that are written as Java writes members, and classes of packages."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr not in PACKAGES | NOT_OF_THE_JVM:
            if re.fullmatch(r"_?[a-z]+[A-Z]\w*", node.attr):
                yield node.attr
            elif re.fullmatch(r"[A-Z]\w*", node.attr) and not isinstance(node.value, ast.Name):
                yield node.attr


def symbols(function: str) -> list[str]:
    """What a function uses."""
    return [symbol.partition("/")[0] for symbol in (*JVM.get(function, ()), *PYSPARK.get(function, ()))]


def parts(function: str) -> set[str]:
    """The names of classes and members that a function uses."""
    return {part for symbol in symbols(function) for part in re.split(r"[.$]", symbol)}
