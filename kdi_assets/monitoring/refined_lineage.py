"""Which upstream columns each column of a refined table is made of, by Spark's analysis of the document's SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.refine.columns import FROM, SEQUENCE
from kdi_assets.refine.envelope import CHANGE_SEQUENCE
from kdi_assets.refine.transform import transform
from kdi_assets.stream.refined_table import Aggregate, RefinedTableSpec, Upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Origin = tuple[str, str]
"""The path of an upstream table, and a column of it."""

PASSING_ON = frozenset(
    "Project Filter SubqueryAlias View Generate Aggregate Join Window Sort GlobalLimit LocalLimit Distinct "
    "Deduplicate LogicalRelation LocalRelation LogicalRDD WithCTE CTERelationDef".split()
)
"""Nodes of Spark's plan whose columns are those of their children, or named expressions over these."""


def refined_lineage(table: RefinedTableSpec, lake: str, session: Callable[[], SparkSession]) -> dict[str, list[Origin]]:
    """The origins of each column of the table; columns without one are missing. Reads logs, no rows.

    Empty if they cannot be derived, as of a UNION.
    """
    spark = session()
    frames = {u.view: spark.read.format("delta").load(u.uri(lake)) for u in table.upstreams}
    result = _shaped(table, transform(spark, table, frames))
    leaves = {
        attribute: (upstream.table, name)
        for upstream, frame in zip(table.upstreams, frames.values(), strict=True)
        for name, attribute in _outputs(_plan(frame))
    }
    kept = set(_columns(table, lake))
    found = {name: origins for name, origins in _origins(_plan(result), leaves).items() if origins}
    return {name: sorted(origins) for name, origins in found.items() if name in kept}


def _shaped(table: RefinedTableSpec, result: DataFrame) -> DataFrame:
    """The result with the columns that the mode adds: measures of groups, the sequence of changes."""
    mode = table.mode
    if isinstance(mode, Aggregate):
        measures = [f"({m.of}) AS `{name}`" for name, m in mode.measures.items()]
        return result.selectExpr(*(f"`{column}`" for column in mode.by), *measures)
    if isinstance(mode, Upsert):
        name = FROM if mode.scd_type == 2 else SEQUENCE
        sequence = CHANGE_SEQUENCE if mode.envelope else mode.sequence_by
        return result.selectExpr("*", f"({sequence}) AS `{name}`")
    return result


def _columns(table: RefinedTableSpec, lake: str) -> list[str]:
    log = TableLog.existing(table.table_uri(lake))
    return [field["name"] for field in log.schema["fields"]]


def _origins(plan: Any, leaves: Mapping[int, Origin]) -> dict[str, set[Origin]]:
    derived: dict[int, set[int]] = {}
    nodes = list(_nodes(plan))
    if any(str(node.nodeName()) not in PASSING_ON and node.children().size() for node in nodes):
        return {}
    named = {int(node.id()): _outputs(node) for node in nodes if str(node.nodeName()) == "CTERelationDef"}
    for node in nodes:
        derived.update(_made_here(node))
        if str(node.nodeName()) == "CTERelationRef":  # it has the columns of a WITH under ids of its own
            columns = zip(_outputs(node), named.get(int(node.cteId()), ()), strict=False)
            derived.update({mine: {theirs} for (_, mine), (_, theirs) in columns if mine != theirs})
    return {name: _followed(attribute, derived, leaves, set()) for name, attribute in _outputs(plan)}


def _made_here(node: Any) -> Iterator[tuple[int, set[int]]]:
    """The columns that a node makes, each with those that it is made of."""
    for expression in _each(node.expressions()):
        if str(expression.getClass().getSimpleName()) == "Alias":
            yield _id(expression), {_id(a) for a in _each(expression.references().toSeq())}
    if str(node.nodeName()) == "Generate":
        source = {_id(a) for a in _each(node.generator().references().toSeq())}
        for attribute in _each(node.generatorOutput()):
            yield _id(attribute), source


def _followed(
    attribute: int, derived: Mapping[int, set[int]], leaves: Mapping[int, Origin], seen: set[int]
) -> set[Origin]:
    if attribute in leaves:
        return {leaves[attribute]}
    if attribute in seen:
        return set()
    made_of = derived.get(attribute, set())
    return {origin for one in made_of for origin in _followed(one, derived, leaves, seen | {attribute})}


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _outputs(plan: Any) -> list[tuple[str, int]]:
    return [(str(a.name()), _id(a)) for a in _each(plan.output())]


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))
