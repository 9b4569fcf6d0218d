"""Which upstream columns each column of a refined table is made of, by Spark's analysis of the document's SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.refined_modes import Aggregate, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.columns import FROM, SEQUENCE, one_value
from kdi_assets.follow.refine.envelope import CHANGE_SEQUENCE, ordering
from kdi_assets.follow.refine.transform import transform
from kdi_assets.runtime.spark_internals import PlanNode, columns_of_ctes, plan_nodes

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
    frames = {u.view: spark.read.format("delta").load(u.table_uri(lake)) for u in table.upstreams}
    result = _shaped(table, transform(spark, table, frames))
    leaves = {
        attribute: (upstream.table, name)
        for upstream, frame in zip(table.upstreams, frames.values(), strict=True)
        for name, attribute in plan_nodes(frame)[0].columns
    }
    kept = set(_columns(table, lake))
    found = {name: origins for name, origins in _origins(plan_nodes(result), leaves).items() if origins}
    return {name: sorted(origins) for name, origins in found.items() if name in kept}


def _shaped(table: RefinedTableSpec, result: DataFrame) -> DataFrame:
    """The result with the columns that the mode adds: measures of groups, the sequence of changes."""
    mode = table.mode
    if isinstance(mode, Aggregate):
        measures = [f"{one_value(m.of)} AS `{name}`" for name, m in mode.measures.items()]
        return result.selectExpr(*(f"`{column}`" for column in mode.by), *measures)
    if isinstance(mode, Upsert):
        name = FROM if mode.scd_type == 2 else SEQUENCE
        sequence = CHANGE_SEQUENCE if mode.envelope else ordering(result, mode.sequence_by)
        return result.selectExpr("*", f"{sequence} AS `{name}`")
    return result


def _columns(table: RefinedTableSpec, lake: str) -> list[str]:
    log = TableLog.existing(table.table_uri(lake))
    return [field["name"] for field in log.schema["fields"]]


def _origins(nodes: Sequence[PlanNode], leaves: Mapping[int, Origin]) -> dict[str, set[Origin]]:
    if any(node.name not in PASSING_ON and node.has_children for node in nodes):
        return {}
    # What reads a WITH has its columns under ids of its own.
    derived = {mine: {theirs} for mine, theirs in columns_of_ctes(nodes).items()}
    for node in nodes:
        derived |= {column: set(made_of) for column, made_of in node.made}
    return {name: _followed(attribute, derived, leaves, set()) for name, attribute in nodes[0].columns}


def _followed(
    attribute: int, derived: Mapping[int, set[int]], leaves: Mapping[int, Origin], seen: set[int]
) -> set[Origin]:
    if attribute in leaves:
        return {leaves[attribute]}
    if attribute in seen:
        return set()
    made_of = derived.get(attribute, set())
    return {origin for one in made_of for origin in _followed(one, derived, leaves, seen | {attribute})}
