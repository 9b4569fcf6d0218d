"""Masks: what stands in place of values that nobody may read, in the table and in the values of dead letters.

A secret is data, never part of an expression: plans are shown, by Spark's UI and by its errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kdi_assets.drain.rules.errors import MaskSecretMissing
from kdi_assets.drain.rules.records import steps_to
from kdi_assets.formats.rules import literal, name
from kdi_assets.stream.message_format import Json
from kdi_assets.stream.message_rules import DeadLetterPayload, Mask
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_END = "_k3d90"
_BLOCK = 64  # bytes of a block of SHA-256, by which HMAC pads its key: RFC 2104


def with_secrets(frame: DataFrame, stream: Stream) -> DataFrame:
    """Add the keys of the stream's hashes as columns.

    Raises:
        MaskSecretMissing: One of them is not in the environment.
    """
    keys: dict[str, bytes] = {}
    for column, mask in stream.mask.items():
        if mask.how == "hash":
            secret = os.environ.get(mask.secret, "")
            if not secret:
                raise MaskSecretMissing(stream=stream.name, column=column, variable=mask.secret)
            inner, outer = _columns(mask)
            keys |= dict(zip((inner, outer), _padded(secret.encode()), strict=True))
    if not keys:
        return frame
    held = frame.sparkSession.createDataFrame([tuple(keys.values())], ", ".join(f"{name(k)} binary" for k in keys))
    return frame.withColumns({key: held.select(key).scalar() for key in keys})


def without_secrets(frame: DataFrame, stream: Stream) -> DataFrame:
    """Add their columns without a key: what is only looked at needs none."""
    from pyspark.sql import functions as F

    columns = [c for mask in stream.mask.values() if mask.how == "hash" for c in _columns(mask)]
    return frame.withColumns({column: F.lit(None).cast("binary") for column in columns}) if columns else frame


def masked(value: str, mask: Mask) -> str:
    """Spark SQL of what stands in place of a value; not for ``drop``."""
    text = f"CAST({value} AS STRING)"
    if mask.how == "keep_last":
        text = f"make_valid_utf8({text})"  # of bytes the end may be half a character, which other readers refuse
    if mask.how == "hash":
        inner, outer = (name(column) for column in _columns(mask))
        digest = f"unhex(sha2(concat({inner}, CAST({text} AS BINARY)), 256))"
        return f"CASE WHEN {value} IS NOT NULL THEN sha2(concat({outer}, {digest}), 256) END"
    if mask.how == "keep_last":
        hidden, kept = f"repeat('*', greatest(length({text}) - {mask.keep}, 0))", f"right({text}, {mask.keep})"
        none = f"repeat('*', length({text}))"
        return f"CASE WHEN length({text}) > {mask.keep} THEN concat({hidden}, {kept}) ELSE {none} END"
    return f"CASE WHEN false THEN {value} END"  # a null of the value's type


def letters_hold(stream: Stream, record: StructType) -> DeadLetterPayload:
    """What dead letters hold of a message; where nothing else is said, what is to be masked is in none of them."""
    asked = stream.dead_letter_payload or "mask"
    if asked != "mask":
        return asked
    if not stream.mask:
        return "keep"
    return "withhold" if unlocated(stream, record) else "mask"


def unlocated(stream: Stream, record: StructType) -> str:
    """Why nobody knows where the masked values stand in a message; empty if it is known."""
    if not isinstance(stream.format, Json) or stream.compression != "none":
        return "masked fields are found in messages of plain JSON alone"
    return made_of_others(stream, record)


def made_of_others(stream: Stream, record: StructType) -> str:
    """Why nobody knows which fields of a message what is masked is made of; empty if it is known."""
    for path in stream.mask:
        if not steps_to(path, record) or any(overlap(path, column) for column in stream.columns):
            return f"{path} is made by an expression, so nobody knows where in the message its value stands"
    return ""


def payload(value: str, stream: Stream, record: StructType) -> str:
    """Spark SQL of the message's value as a dead letter may hold it; what is to be masked and not found is withheld."""
    holds = letters_hold(stream, record)
    if holds == "keep":
        return value
    if holds == "withhold":
        return "CAST(NULL AS BINARY)"
    # Parsed before a marker of ours: by itself Spark's parser takes what stands behind a document for nothing.
    enclosed = f"""try_parse_json(concat('[', CAST({value} AS STRING), ',"{_END}"]'))"""
    elements = f"try_variant_get({enclosed}, '$', 'array<variant>')"
    document = f"CASE WHEN size({elements}) = 2 THEN get({elements}, 0) END"
    tree: dict[str, object] = {}
    for path, mask in stream.mask.items():
        node = tree
        *outer, last = steps_to(path, record)
        for step in outer:
            node = node.setdefault(step, {})  # type: ignore[assignment]
        node[last] = mask
    return f"CAST(to_json({_object(document, tree, 0)}) AS BINARY)"


def letter_columns(stream: Stream, record: StructType, columns: Sequence[str]) -> list[str]:
    """Those of a dead letter's columns that hold what the message does."""
    withheld = () if letters_hold(stream, record) == "keep" else ("key", "value", "headers")
    return [column for column in columns if column not in withheld]


def _object(value: str, tree: Mapping[str, object], depth: int) -> str:
    """A variant object with what the tree names masked at any spelling; null where the value is no object."""
    key, item, fields = f"_kdi_k{depth}", f"_kdi_v{depth}", f"try_cast({value} AS MAP<STRING, VARIANT>)"
    dropped = [step for step, node in tree.items() if isinstance(node, Mask) and node.how == "drop"]
    names = ", ".join(f"lower({literal(step)})" for step in dropped)
    kept = f"map_filter({fields}, ({key}, {item}) -> lower({key}) NOT IN ({names}))" if dropped else fields
    cases = " ".join(f"WHEN lower({literal(step)}) THEN {_node(item, node, depth)}" for step, node in tree.items())
    return f"to_variant_object(transform_values({kept}, ({key}, {item}) -> CASE lower({key}) {cases} ELSE {item} END))"


def _node(item: str, node: object, depth: int) -> str:
    if isinstance(node, dict):
        return _object(item, node, depth + 1)
    if not isinstance(node, Mask) or node.how in ("drop", "null"):
        return "CAST(NULL AS VARIANT)"
    return f"CAST({masked(item, node)} AS VARIANT)"


def overlap(one: str, other: str) -> bool:
    """Whether a path is another, or leads to it or through it."""
    first, second = f"{one.lower()}.", f"{other.lower()}."
    return first.startswith(second) or second.startswith(first)


def _columns(mask: Mask) -> tuple[str, str]:
    variable = mask.secret.encode().hex()  # variables differ by their spelling, columns do not
    return f"_kdi_inner_{variable}", f"_kdi_outer_{variable}"


def _padded(secret: bytes) -> tuple[bytes, bytes]:
    """The two keys of HMAC."""
    from hashlib import sha256

    key = (sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(_BLOCK, b"\0")
    return bytes(b ^ 0x36 for b in key), bytes(b ^ 0x5C for b in key)
