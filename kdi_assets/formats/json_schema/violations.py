"""Whether documents are what a JSON Schema says: in Spark's Python workers, on Arrow batches.

CPU for a document of 330 bytes with eight properties: 5.2 µs to parse it, 0.4 µs to hold it against the schema with
jsonschema-rs; fastjsonschema, which knows no draft after 7, 3 µs; jsonschema 120 µs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from kdi_assets.formats.json_schema.schema import JsonSchema, property_names, validator

if TYPE_CHECKING:
    import pyarrow as pa
    from jsonschema_rs import ValidationError, Validator
    from pyspark.sql import Column


def violation(payload: Column, schema_id: Column, schemas: Mapping[int, JsonSchema]) -> Column:
    """Where a document is not as its schema says.

    Args:
        payload: binary.
        schema_id: bigint: which of ``schemas`` it is.

    Returns:
        string: path of the field, empty for the whole document; null where nothing is wrong, and of a payload or
        schema that is not there.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    held_against = dict(schemas)
    # A lambda has no hints of types, which Spark would read, and could not: pyarrow is no name of this module.
    found = arrow_udf(lambda payloads, ids: violations(payloads, ids, held_against), "string")  # type: ignore[call-overload]
    return cast("Column", found.asNondeterministic()(payload, schema_id))  # else Spark may run it again


def violations(payloads: pa.Array, ids: pa.Array, schemas: Mapping[int, JsonSchema]) -> pa.Array:
    """As ``violation``, of one batch."""
    import pyarrow as pa

    judges = {schema_id: (validator(schema), property_names(schema)) for schema_id, schema in schemas.items()}
    pairs = zip(payloads.to_pylist(), ids.to_pylist(), strict=True)
    return pa.array([_where(payload, judges.get(id_)) for payload, id_ in pairs], pa.string())


def _where(payload: bytes | None, judge: tuple[Validator, frozenset[str]] | None) -> str | None:
    if payload is None or judge is None:
        return None
    schema, named = judge
    try:
        document = json.loads(payload)
        if schema.is_valid(document):
            return None
        return _path(next(schema.iter_errors(document)), named)
    except (ValueError, RecursionError, StopIteration):
        return ""  # no JSON, which has reasons of its own; or what no validator takes, as text that is no UTF-8


def _path(error: ValidationError, named: frozenset[str]) -> str:
    """As rules name fields: what is missing is at fault itself.

    Names that are not the schema's are the message's: keys of maps, and of any length. None of them is said, for it
    may be what a mask hides.
    """
    steps = [*error.instance_path, *([error.kind.value] if error.kind.name == "required" else [])]
    return "".join(f".{step}" if step in named else "[]" for step in steps).removeprefix(".")
