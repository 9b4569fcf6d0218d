"""What a document asks of messages, taken as written: filter, masks, expectations, contract, limit of dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.components.mistakes import Mistakes
from kdi_assets.components.reading import read_streams
from kdi_assets.message_rules import DeadLetterLimit, Expectation, Explode, Mask
from kdi_assets.stream import Stream
from tests.documents import only_mistake, only_stream, stream, with_attribute, written
from tests.protobuf_messages import SHOP, descriptors

HASHED = Mask("hash", secret="SALT")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDI_KAFKA", raising=False)
    monkeypatch.delenv("KDI_DEFS", raising=False)


def test_what_is_exploded_reaches_the_stream_as_it_was_written(tmp_path: Path) -> None:
    array = "filter(items, i -> i.qty > 0)"

    asked = only_stream(tmp_path, with_attribute(f'explode: {{item: "{array}"}}'))

    assert (asked.explode, asked.explodes) == (Explode("item", array), True)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("items", "'items' is not a name and an array; one of each, e.g. {item: items}"),
        ("{}", "{} is not a name and an array; one of each, e.g. {item: items}"),
        ("{a: x, b: y}", "{'a': 'x', 'b': 'y'} is not a name and an array; one of each, e.g. {item: items}"),
        ("{a.b: x}", "'a.b' is no name for an element; letters, digits and '_', e.g. item"),
        ("{_kdi_a: x}", "'_kdi_a' is no name for an element; letters, digits and '_', e.g. item"),
        ("{item: }", "None is no expression; Spark SQL of an array, e.g. {item: items}"),
    ],
)
def test_what_nothing_can_be_exploded_by_is_refused(tmp_path: Path, written: str, said: str) -> None:
    assert only_mistake(tmp_path, f"explode: {written}") == f"explode: {said}"


def test_a_filter_reaches_the_stream_as_it_was_written(tmp_path: Path) -> None:
    condition = "kind = 'order' AND get(kafka.headers, 0).key <> '{test}'"

    assert only_stream(tmp_path, with_attribute(f'filter: "{condition}"')).filter == condition
    assert only_mistake(tmp_path, 'filter: " "') == "filter: is empty; give it Spark SQL"


def test_masks_are_words_or_say_how_much_is_kept_or_where_the_secret_lies(tmp_path: Path) -> None:
    line = "mask: {a: drop, b: null, b.c: 'null', d: {keep_last: 4}, e: {hash: {env: SALT}}}"

    stream = only_stream(tmp_path, with_attribute(line))

    assert list(stream.mask.values()) == [Mask("drop"), Mask("null"), Mask("null"), Mask("keep_last", keep=4), HASHED]
    assert stream.dead_letter_payload is None


@pytest.mark.parametrize(
    "mask",
    ["hide", "{keep_last: 0}", "{keep_last: yes}", "{hash: SALT}", "{hash: {env: A, b: 1}}", "{keep_last: 1, x: 1}"],
)
def test_what_is_no_mask_is_named(tmp_path: Path, mask: str) -> None:
    said = only_mistake(tmp_path, f"mask: {{a: {mask}}}")

    assert said.startswith("mask.a: ") and "is no mask; drop, null, {keep_last: 4}, or {hash: {env: NAME}}" in said


def test_what_dead_letters_hold_is_one_of_three(tmp_path: Path) -> None:
    for word in ("keep", "mask", "withhold"):
        assert only_stream(tmp_path, with_attribute(f"dead_letter_payload: {word}")).dead_letter_payload == word
    assert only_mistake(tmp_path, "dead_letter_payload: hide").endswith(
        "says nothing of payloads; keep, mask or withhold"
    )


def test_expectations_have_names_conditions_and_what_happens(tmp_path: Path) -> None:
    line = "expectations: {is_ours: {sql: \"tenant = 'acme'\", then: fail}, has_id: {sql: id > 0}}"

    expected = only_stream(tmp_path, with_attribute(line)).expectations

    assert expected == {"is_ours": Expectation("tenant = 'acme'", "fail"), "has_id": Expectation("id > 0", "warn")}
    assert list(only_stream(tmp_path, with_attribute(line)).check_names).count("expectations") == 1
    assert "expectations" not in only_stream(tmp_path, with_attribute("")).check_names


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "expectations: {Is ours: {sql: id > 0}}",
            "expectations.Is ours: 'Is ours' is not a name for an exp",
        ),
        ("contract: {types: x}", "contract.types: 'x' is no policy; evolve, freeze, discard_value or discard_row"),
        ("rescued: a.b", "rescued: 'a.b' is not a name for this column; a name without dots"),
        ("rescued: date", "rescued: 'date' is not a name for this column; a name without dots"),
        (
            "contract: {new_columns: drop}",
            "contract.new_columns: 'drop' is no policy; evolve, freeze, discard_value or",
        ),
        ("expectations: {ours: {sql: id > 0, then: drop}}", "expectations.ours.then: 'drop' is nothing to do; warn,"),
        ("expectations: {ours: {sq: id > 0, sql: id > 0}}", "expectations.ours.sq: no such field; did you mean sql?"),
        ("expectations: {ours: {then: warn}}", "expectations.ours.sql: is missing; e.g. sql: status BETWEEN"),
    ],
)
def test_what_is_wrong_with_an_expectation_is_named(tmp_path: Path, line: str, said: str) -> None:
    assert only_mistake(tmp_path, line).startswith(said)


@pytest.mark.parametrize("line", ["rescued: more", "contract: {types: discard_value}"])
def test_what_asks_for_single_fields_is_for_json_alone(tmp_path: Path, line: str) -> None:
    with pytest.raises(Mistakes, match="asks for single fields of messages, and only of json they are at hand, not"):
        only_stream(tmp_path, with_attribute(f"{line}\n  format: csv"))


@pytest.mark.parametrize("policy", ["freeze", "discard_row"])
def test_what_does_not_tell_its_unknown_fields_is_not_judged_by_them(tmp_path: Path, policy: str) -> None:
    with pytest.raises(Mistakes, match="messages of csv do not tell here which fields the record has not"):
        only_stream(tmp_path, with_attribute(f"contract: {{new_columns: {policy}}}\n  format: csv"))

    assert only_stream(tmp_path, with_attribute(f"contract: {{new_columns: {policy}}}")).contract.new_columns == policy


def test_protobuf_by_a_file_tells_its_unknown_fields_and_keeps_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "orders.desc").write_bytes(descriptors(SHOP))

    def given(more: str) -> Stream:
        record = "format: {protobuf: {descriptor_file: orders.desc, message: shop.Order}}"
        return only_stream(tmp_path, stream("orders", record=record, more=f", {more}"))

    for policy in ("discard_value", "discard_row", "freeze", "evolve"):
        assert given(f"contract: {{new_columns: {policy}}}").contract.new_columns == policy
    with pytest.raises(Mistakes, match="only of json they are at hand, not of protobuf"):
        given("rescued: more")


def test_what_becomes_several_rows_does_not_evolve(tmp_path: Path) -> None:
    evolves = "contract: {types: evolve}"
    with pytest.raises(Mistakes, match="evolve does not know the columns of elements"):
        only_stream(tmp_path, with_attribute(f"{evolves}\n  explode: {{one: parts}}"))

    container = "format: {avro: {container: true, schema_file: a.avsc}}"
    found = read_streams(written(tmp_path, c=stream("bronze/c", record=container, more=f", {evolves}"))).mistakes
    assert any("evolve does not know the columns of elements" in mistake.message for mistake in found)


def test_expectations_block_by_themselves_and_not_by_their_check(tmp_path: Path) -> None:
    with pytest.raises(Mistakes, match="names expectations, and that check only warns; `then: fail` stops the drain"):
        only_stream(tmp_path, with_attribute("checks: {blocking: [expectations]}"))


def test_the_limit_of_dead_letters_is_given_by_share_and_count(tmp_path: Path) -> None:
    limit = only_stream(tmp_path, with_attribute("dead_letter_limit: {share: 0.1, count: 1000}")).dead_letter_limit

    assert limit == DeadLetterLimit(share=0.1, count=1000)
    assert "dead_letter_limit.share: 10 is no share; between 0 and 1" in only_mistake(
        tmp_path, "dead_letter_limit: {share: 10}"
    )
    assert only_mistake(tmp_path, "dead_letter_limit: {rate: 0.1}").startswith("dead_letter_limit.rate: no such field")


@pytest.mark.parametrize(
    ("limit", "dead_letters", "messages", "passed"),
    [
        (DeadLetterLimit(), 100, 100, False),  # a handful of bad messages, and no others
        (DeadLetterLimit(), 101, 101, True),
        (DeadLetterLimit(), 500_000, 1_000_000, False),
        (DeadLetterLimit(), 500_001, 1_000_000, True),
        (DeadLetterLimit(share=0, count=10), 11, 1_000_000, True),
        (DeadLetterLimit(share=0.1, count=0), 1, 9, True),
        (DeadLetterLimit(share=1, count=0), 9, 9, False),
    ],
)
def test_the_limit_is_passed_by_too_many_that_are_also_too_large_a_share(
    limit: DeadLetterLimit, dead_letters: int, messages: int, passed: bool
) -> None:
    assert limit.is_passed_by(dead_letters, of=messages) is passed
