"""Every name of Spark, Delta and Kafka's source that an adapter uses is there: an upgrade names the one that is not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kdi_assets.delta.internals import delta_version
from kdi_assets.follow.refine.transform import ROW_BY_ROW
from kdi_assets.operate.monitoring.refined_lineage import PASSING_ON
from kdi_assets.runtime.gateway import gateway_of
from kdi_assets.runtime.jvm_names import PACKAGES
from tests.jvm_symbols import JVM, PYSPARK

pytestmark = pytest.mark.core
SQL = "org.apache.spark.sql"
NODE_PACKAGES = ("catalyst.plans.logical", "execution.datasources", "execution")


def users(symbols: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The functions that use a symbol."""
    used: dict[str, list[str]] = {}
    for function, names in symbols.items():
        for name in names:
            used.setdefault(name, []).append(function)
    return used


USERS = users(JVM)
USERS_OF_PYSPARK = users(PYSPARK)


class Names:
    """Asks the JVM of a session for classes and members, by reflection."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._jvm = spark, cast("Any", spark._jvm)
        self._members = cache(self._asked)

    def is_class(self, name: str) -> bool:
        return self._members(name) is not None

    def gone(self, symbol: str, used_by: Sequence[str]) -> str:
        """What to say of a symbol that is not there; empty if it is."""
        member, _, parameters = symbol.partition("/")
        class_, _, name = member.rpartition(".")
        if not parameters and self._members(member) is not None:
            return ""  # a class
        members = self._members(class_)
        if members is not None and (name, int(parameters) if parameters else None) in members:
            return ""
        detail = f" with {parameters} parameters" if parameters and members is not None else ""
        return f"{member} is gone{detail} ({self._version(member)}): used by {', '.join(used_by)}"

    def _asked(self, class_: str) -> frozenset[tuple[str, int | None]] | None:
        """The public members of a class with the number of their parameters, none for a field; ``None``: no class."""
        from py4j.protocol import Py4JJavaError

        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            found = self._jvm.java.lang.Class.forName(class_, False, loader)
        except Py4JJavaError:
            return None
        text = self._jvm.scala.runtime.ScalaRunTime.stringOf  # py4j passes no array of these to Java's own
        methods = re.findall(r"\.([\w$]+)\(([^)]*)\)", text(found.getMethods()))
        made = [("<init>", given) for given in re.findall(r"\(([\w.$,\[\]]*)\)", text(found.getConstructors()))]
        fields = re.findall(r"\.(\w+)[,)]", text(found.getFields()))
        counted = {(name, len(given.split(",")) if given else 0) for name, given in [*methods, *made]}
        return frozenset[tuple[str, int | None]]({*counted, *((name, None) for name in fields)})

    def _version(self, member: str) -> str:
        if member.startswith((f"{SQL}.delta.", "io.delta.")):
            return f"Delta {delta_version(self._spark)}"
        if member.startswith("org.apache.spark."):
            return f"Spark {self._spark.version}"
        if member.startswith("org.apache.kafka."):
            return f"Kafka's client {self._jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion()}"
        if member.startswith("scala."):
            return f"Scala {self._jvm.scala.util.Properties.versionNumberString()}"
        return f"beside Spark {self._spark.version}"


@pytest.fixture(scope="module")
def names(spark: SparkSession) -> Names:
    return Names(spark)


@pytest.mark.parametrize("symbol", USERS)
def test_the_jvm_has_what_the_adapters_use(names: Names, symbol: str) -> None:
    assert names.gone(symbol, USERS[symbol]) == ""


@pytest.mark.parametrize("node", sorted(PASSING_ON | ROW_BY_ROW))
def test_spark_has_the_nodes_of_plans_that_the_code_names(names: Names, node: str) -> None:
    symbols = [f"{SQL}.{package}.{node}" for package in NODE_PACKAGES]

    said = [names.gone(symbol, ["refine.transform, monitoring.refined_lineage"]) for symbol in symbols]

    assert "" in said, said[0]


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        (f"{SQL}.delta.DeltaLog.none/2", "delta.DeltaLog.none is gone with 2 parameters (Delta {delta}): used by here"),
        (f"{SQL}.delta.DeltaLog.forTable/9", "forTable is gone with 9 parameters (Delta {delta}): used by here"),
        (f"{SQL}.delta.NoLog.forTable/2", "delta.NoLog.forTable is gone (Delta {delta}): used by here"),
        (f"{SQL}.catalyst.NoRow", "catalyst.NoRow is gone (Spark {spark}): used by here"),
        (f"{SQL}.SaveMode.Prepend", "SaveMode.Prepend is gone (Spark {spark}): used by here"),
        ("org.apache.kafka.common.TopicPartition.<init>/5", "<init> is gone with 5 parameters (Kafka's client "),
    ],
)
def test_what_is_gone_is_named_with_its_version_and_its_users(
    names: Names, spark: SparkSession, symbol: str, said: str
) -> None:
    assert said.format(delta=delta_version(spark), spark=spark.version) in names.gone(symbol, ["here"])


@pytest.mark.parametrize("symbol", USERS_OF_PYSPARK)
def test_pyspark_has_what_the_adapters_use(spark: SparkSession, symbol: str) -> None:
    assert gone_from_pyspark(spark, symbol, USERS_OF_PYSPARK[symbol]) == ""


@pytest.mark.parametrize("symbol", ["frame._jrows", "pyspark.sql.Nothing", "pyspark.nothing.Nothing"])
def test_what_is_gone_from_pyspark_is_named_too(spark: SparkSession, symbol: str) -> None:
    said = f"{symbol} is gone (PySpark {spark.version}): used by here"

    assert gone_from_pyspark(spark, symbol, ["here"]) == said


def gone_from_pyspark(spark: SparkSession, symbol: str, used_by: Sequence[str]) -> str:
    """What to say of an attribute that is not there; empty if it is."""
    first, *steps = symbol.split(".")
    places: Mapping[str, Any] = {"session": spark, "frame": spark.range(1), "gateway": gateway_of(spark)}
    found = places[first] if first in places else import_module(first)
    for step in steps:
        if not hasattr(found, step):
            try:
                found = import_module(f"{found.__name__}.{step}")
            except (ImportError, AttributeError):
                return f"{symbol} is gone (PySpark {spark.version}): used by {', '.join(used_by)}"
        else:
            found = getattr(found, step)
    return ""


def test_no_name_that_is_taken_for_a_package_unasked_is_a_class(names: Names) -> None:
    assert [package for package in sorted(PACKAGES) if names.is_class(package)] == []
    assert names.is_class("io.delta.package"), "a class whose name looks like that of a package"
