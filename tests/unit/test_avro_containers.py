"""Containers of Avro are opened to their last byte or not at all, and never beyond a limit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.formats.avro_container import opening as module
from kdi_assets.formats.avro_container.canonical import canonical_form
from kdi_assets.formats.avro_container.opening import Condemned, opened, opening
from tests.avro_bytes import COMPRESS, SYNC, container, datum, long

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}
FORM = canonical_form('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')


def values(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "s": f"text {n}" * 3} for n in range(count)]


def datums(count: int) -> bytes:
    return b"".join(datum(SCHEMA, value) for value in values(count))


def reason(payload: bytes, **options: Any) -> str:
    with pytest.raises(Condemned) as condemned:
        opened(payload, **options)
    return str(condemned.value)


@pytest.mark.parametrize("codec", COMPRESS)
def test_the_blocks_of_a_container_are_those_of_an_array(codec: str) -> None:
    found = opened(container(SCHEMA, values(30), [], values(2), codec=codec))

    assert found.datums == long(30) + datums(30) + long(2) + datums(2) + long(0)
    assert canonical_form(found.schema) == canonical_form(str(SCHEMA).replace("'", '"'))


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_container_that_is_cut_off_anywhere_is_none(codec: str) -> None:
    whole = container(SCHEMA, values(30), codec=codec)
    header = whole.index(SYNC) + len(SYNC)

    told = {reason(whole[:end]) for end in range(len(whole)) if end != header}

    assert told == {"not_a_container", "malformed_container"}
    assert opened(whole[:header]).datums == long(0)


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_container_holds_so_many_bytes_and_no_more(codec: str) -> None:
    size = len(datums(30))
    two = container(SCHEMA, values(30), values(30), codec=codec)

    assert len(opened(two, limit=2 * size).datums) > 2 * size
    assert reason(two, limit=2 * size - 1) == "too_large"
    assert reason(two, limit=size) == "too_large"
    assert reason(container(SCHEMA, [{"id": 1, "s": "x" * 10**6}], codec=codec), limit=1000) == "too_large"


def test_datums_without_a_byte_have_a_limit_of_their_own() -> None:
    many = container("null", [None], text='"null"')
    head = many[: many.index(SYNC) + len(SYNC)]

    assert opened(head + long(1_000_000) + long(0) + SYNC).datums == long(1_000_000) + long(0)
    assert reason(head + long(1_000_001) + long(0) + SYNC) == "too_large"
    assert reason(head + (long(600_000) + long(0) + SYNC) * 2) == "too_large"
    assert reason(head + long(-1) + long(0) + SYNC) == "malformed_container"


def test_what_a_batch_holds_comes_back_in_batches_that_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1000)
    large = container(SCHEMA, [{"id": 1, "s": "x" * 600}])
    known = {canonical_form(opened(large).schema): 3}
    batches = [pa.array([large, b"x", None, large, large, large]), pa.array([], pa.binary()), pa.array([large])]

    found = list(opening(known)(iter(batches)))

    assert [len(batch) for batch in found] == [4, 2, 0, 0, 1]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row["reason"] for row in rows] == [None, "not_a_container", "not_a_container", None, None, None, None]
    assert {row["writer"] for row in rows if not row["reason"]} == {3}


def test_a_schema_that_is_not_known_is_told_in_its_canonical_form_and_its_datums_are_left() -> None:
    [found] = opening({FORM: 0})(iter([pa.array([container(SCHEMA, values(1)), container(SCHEMA, text="{}")])]))

    assert found.to_pylist() == [
        {"reason": None, "writer": None, "schema": canonical_form(opened(container(SCHEMA)).schema), "datums": None},
        {"reason": "malformed_container", "writer": None, "schema": None, "datums": None},
    ]
