"""Where documents violate their schemas: runs in Spark's Python workers, on Arrow batches.

CPU for a document of 330 bytes with eight properties: 5.2 µs to parse it, 0.4 µs to validate it with jsonschema-rs;
fastjsonschema, which knows no draft after 7, takes 3 µs; jsonschema 120 µs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from jsonschema_rs import ValidationError, Validator


class ValidatorParts(NamedTuple):
    """A schema, parsed; plain data, because it is sent to workers.

    Attributes:
        base: The address of the schema.
        others: The schemas that it refers to, by their addresses.
    """

    root: Any
    base: str
    others: list[tuple[str, Any]]


def built(root: Any, base: str, others: list[tuple[str, Any]]) -> Validator:
    """The validator of these parts; raises ``ValueError`` if there is none."""
    import jsonschema_rs

    registry = jsonschema_rs.Registry(others) if others else None
    return jsonschema_rs.validator_for(root, registry=registry, base_uri=base, offline=True)


def finding(schemas: Mapping[int, tuple[ValidatorParts, frozenset[str]]]) -> Callable[..., pa.Array]:
    """The function that workers run.

    Args:
        schemas: By id: a schema that has a validator, and the names of its properties.

    Returns:
        Documents (binary) and the ids of their schemas (bigint) to the paths of the fields that violate them, as
        ``decoders.violation`` has them.
    """
    by_id: dict[int, tuple[Validator, frozenset[str]]] = {}

    def find(payloads: pa.Array, ids: pa.Array) -> pa.Array:
        import pyarrow as pa

        if not by_id:
            by_id.update({schema_id: (built(*parts), named) for schema_id, (parts, named) in schemas.items()})
        pairs = zip(payloads.to_pylist(), ids.to_pylist(), strict=True)
        return pa.array([_where(payload, by_id.get(id_)) for payload, id_ in pairs], pa.string())

    return find


def _where(payload: bytes | None, by: tuple[Validator, frozenset[str]] | None) -> str | None:
    if payload is None or by is None:
        return None
    schema, named = by
    try:
        document = json.loads(payload)
        if schema.is_valid(document):
            return None
        return _path(next(schema.iter_errors(document)), named)
    except (ValueError, RecursionError, StopIteration):
        return ""  # no JSON (the decoder has a reason for that), or text that a validator refuses, e.g. no UTF-8


def _path(error: ValidationError, named: frozenset[str]) -> str:
    """The path of the field, also of a missing one, as rules name it.

    Names that the schema lacks come from the message, e.g. keys of maps. The path leaves them out: they may be secret.
    """
    steps = [*error.instance_path, *([error.kind.value] if error.kind.name == "required" else [])]
    return "".join(f".{step}" if step in named else "[]" for step in steps).removeprefix(".")
