"""The syntax tree of a JMESPath expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdi_assets.tools.predecessor.errors import NotTranslated
from kdi_assets.tools.predecessor.message_fields import DeltaType, Path
from kdi_assets.tools.predecessor.sql_types import MICROS
from kdi_assets.wording import first_line

Node = Mapping[str, Any]

KAFKA: Mapping[str, tuple[str, DeltaType]] = {
    "kafka.topic": ("kafka.topic", "string"),
    "kafka.partition": ("kafka.partition", "integer"),
    "kafka.offset": ("kafka.offset", "long"),
    "kafka.timestamp": ("kafka.timestamp", MICROS),
    "kafka.timestamp_type": ("kafka.timestamp_type", "integer"),
}
"""Its five well-known sources: the Spark SQL and the type of each."""


def parse_expression(text: str) -> Node:
    """The syntax tree of a JMESPath expression.

    Raises:
        NotTranslated: It is none.
    """
    from jmespath.exceptions import JMESPathError
    from jmespath.parser import Parser

    try:
        tree: Node = Parser().parse(text).parsed
        return tree
    except JMESPathError as wrong:
        raise NotTranslated(f"is not JMESPath: {first_line(wrong)}") from wrong


def path_of(node: Node) -> Path | None:
    """Names and numbers of a path to a field; ``None`` if the node is something else."""
    match node["type"]:
        case "field":
            return (node["value"],)
        case "index":
            return (node["value"],)
        case "identity":
            return ()
        case "subexpression" | "index_expression":
            parts = [path_of(child) for child in node["children"]]
            return None if None in parts else tuple(step for part in parts if part is not None for step in part)
    return None


def constant_of(node: Node) -> int | None:
    """A literal number as Rust's ``as usize`` takes it; ``None`` if it is not a literal."""
    if node["type"] != "literal" or isinstance(node["value"], bool) or not isinstance(node["value"], int | float):
        return None
    return max(0, int(node["value"]))
