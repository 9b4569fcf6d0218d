"""The rules of a stream: one ordered list, and no module is imported for a rule that the stream does not use."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from kdi_assets.documents.model.message_format import AvroContainer, SchemaFile
from kdi_assets.documents.model.message_rules import Expectation, Explode, Mask, Route
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.messages.formats.field_uses import FieldUses
from kdi_assets.messages.formats.plain import PlainDecoder
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.rules.rules import RULES, MessageRule, rules_of

PLAIN = Stream("t", "bronze/t", "id bigint", "current_date()", cluster=Cluster("main", "nowhere:1"))
USED = ["TombstonesRule", "ColumnsRule", "DateWindowRule", "ContractRule"]


@pytest.mark.parametrize(
    ("fields", "module"),
    [
        ({"route": Route("id = 1")}, "route"),
        ({"format": AvroContainer(SchemaFile("a.avsc", "{}"))}, "explode"),
        ({"filter": "id = 1"}, "filter"),
        ({"explode": Explode("item", "items")}, "explode"),
        ({"expectations": {"small": Expectation("id < 9")}}, "expectations"),
        ({"mask": {"id": Mask("drop")}}, "mask"),
        ({"dead_letter_payload": "withhold"}, "mask"),
    ],
)
def test_a_field_of_the_document_adds_the_rule_of_its_module(fields: dict[str, Any], module: str) -> None:
    added = [rule for rule in _rules(**fields) if type(rule).__name__ not in USED]

    assert [type(rule).__module__ for rule in added] == [f"kdi_assets.streams.rules.{module}"]


def test_a_stream_has_its_rules_in_the_order_of_the_list() -> None:
    all_fields = {
        "route": Route("id = 1"),
        "filter": "id = 1",
        "explode": Explode("item", "items"),
        "expectations": {"small": Expectation("id < 9")},
        "mask": {"id": Mask("drop")},
    }

    names = [f"{type(rule).__module__.rpartition('.')[2]}.{type(rule).__name__}" for rule in _rules(**all_fields)]

    assert len(names) == len(USED) + len(all_fields)
    assert names == [name for name in RULES if name in names]


def test_a_plain_stream_imports_no_rule_that_it_does_not_use() -> None:
    """Purpose: what a stream does not ask for can neither cost it time nor break it."""
    code = "import sys; from tests.unit.formats.test_rules import _rules; _rules(); print(*sys.modules)"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    entered = {name.rpartition(".")[2] for name in ended.stdout.split() if name.startswith("kdi_assets.streams.rules.")}
    assert {"tombstones", "date_window", "contract"} < entered
    assert entered.isdisjoint({"route", "filter", "explode", "expectations", "mask", "schema_evolution"})


def _rules(**fields: Any) -> list[MessageRule]:
    stream = replace(PLAIN, **fields)
    return rules_of(StreamDecoder(stream, PlainDecoder("string"), StructType(), StructType(), FieldUses()))
