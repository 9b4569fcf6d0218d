"""A drain's requests to a registry: ids are final, the registry is up or down, cached files are damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from kdi_assets.documents.model.message_format import JsonRegistry, RegistrySchemas
from kdi_assets.documents.model.message_rules import Mask
from kdi_assets.messages.formats.errors import RegistryUnavailable, SubjectVersionUnknown
from kdi_assets.messages.formats.registry.schema import Referenced, Schema, Version
from kdi_assets.messages.formats.registry.schemas import UNKNOWN_SECONDS, Schemas, known_schemas
from kdi_assets.messages.formats.stream_decoder import decoder_of
from tests.formats.fake_registry import RunningRegistry, fake_registry
from tests.judged import stream_of

pytestmark = pytest.mark.usefixtures("at_once")
Anew = Callable[..., Schemas]


@pytest.fixture
def anew(registry: RunningRegistry, tmp_path: Path) -> Anew:
    """The client of another process with the same home."""
    return partial(Schemas, registry.described(), home=tmp_path)


class Clock:
    """Time that passes only when a test says so."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_an_id_is_asked_for_once_whatever_the_process(registry: RunningRegistry, anew: Anew) -> None:
    known = registry.register("a", '"strïng"')

    first = anew()
    told = [first.by_id(known), first.by_id(known), anew().by_id(known)]

    assert told == [Schema(known, "AVRO", '"strïng"')] * 3
    assert registry.asked == [f"/schemas/ids/{known}"]


def test_an_id_that_the_registry_lacks_is_unknown_for_a_while(registry: RunningRegistry, anew: Anew) -> None:
    clock = Clock()
    schemas = anew(now_seconds=clock)

    assert schemas.by_ids([1, 1]) == {1: None}
    late = registry.register("a", '"int"')
    clock.seconds = UNKNOWN_SECONDS - 1
    assert (late, schemas.by_ids([late])) == (1, {1: None})
    assert registry.asked == ["/schemas/ids/1"]
    clock.seconds = UNKNOWN_SECONDS
    assert schemas.by_ids([late]) == {1: Schema(1, "AVRO", '"int"')}


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**32 - 1])
def test_a_number_that_is_no_id_is_not_asked_for(registry: RunningRegistry, anew: Anew, schema_id: int) -> None:
    registry.stop()

    assert anew().by_id(schema_id) is None


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:9], lambda whole: whole.replace(b"int", b"unt"), lambda _: b""]
)
def test_a_damaged_file_is_noticed_and_its_schema_asked_for_again(
    registry: RunningRegistry,
    anew: Anew,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = registry.register("a", '"int"')
    anew().by_id(known)
    (file,) = tmp_path.rglob(f"{known}.json")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))

    assert anew().by_id(known) == Schema(known, "AVRO", '"int"')

    assert f"{file} is damaged; the registry is asked again" in caplog.text
    assert file.read_bytes() == whole
    assert len(registry.asked) == 2


def test_a_read_only_home_is_a_warning(
    registry: RunningRegistry, anew: Anew, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = registry.register("a", '"int"')
    (tmp_path / "registry").write_bytes(b"a file where the folder should be")

    schemas = anew()

    assert schemas.by_id(known) == schemas.by_id(known) == Schema(known, "AVRO", '"int"')
    assert "the next process asks the registry again" in caplog.text


def test_registries_and_their_users_do_not_share_ids(tmp_path: Path) -> None:
    """One address may serve many customers, identified by their keys."""
    with fake_registry() as one, fake_registry() as other:
        one.register("a", '"int"')
        other.register("a", '"long"')
        alice, bob = one.described(username="alice", password="p"), one.described(username="bob", password="p")
        texts = [schema.text for r in (alice, other.described()) if (schema := Schemas(r, home=tmp_path).by_id(1))]
        one.subjects["a"][1].text = '"string"'  # bob's answer

        assert texts == ['"int"', '"long"']
        assert Schemas(bob, home=tmp_path).by_id(1) == Schema(1, "AVRO", '"string"')
        assert Schemas(alice, home=tmp_path).by_id(1) == Schema(1, "AVRO", '"int"')


def reference(name: str, subject: str) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": 1}


def test_references_in_a_circle_end(registry: RunningRegistry, anew: Anew) -> None:
    registry.register("a", "a", references=[reference("b", "b")])
    registry.register("b", "b", references=[reference("a", "a"), reference("b", "b")])

    told = anew().by_id(1)

    assert told == Schema(1, "AVRO", "a", (Referenced("a", "a"), Referenced("b", "b")))


def test_a_schema_is_not_kept_before_all_that_it_refers_to_is_known(registry: RunningRegistry, anew: Anew) -> None:
    order = registry.register("order", "order", references=[reference("item", "item")])
    with pytest.raises(SubjectVersionUnknown):
        anew().by_id(order)
    registry.register("item", "item")

    assert anew().by_id(order) == Schema(order, "AVRO", "order", (Referenced("item", "item"),))


def test_ids_outlive_the_registry(registry: RunningRegistry, anew: Anew, caplog: pytest.LogCaptureFixture) -> None:
    ids = tuple(registry.register("a", f'"{n}"') for n in range(3))
    registry.register("b", '"int"')
    registry.deleted.add(("a", 2))

    assert anew().ids_of("a") == ids
    registry.stop()
    down = anew()
    assert down.ids_of("a") == ids
    assert "The 3 known schemas of a stay in use." in caplog.text
    assert [schema.text for schema in down.by_ids(ids).values() if schema] == ['"0"', '"1"', '"2"']
    with pytest.raises(RegistryUnavailable):
        down.ids_of("b")
    with pytest.raises(RegistryUnavailable):
        down.by_ids([ids[0], 4])
    with pytest.raises(RegistryUnavailable):
        down.version("a")  # the latest is not the highest: deleted versions are among the ids


def test_the_latest_version_outlives_the_registry(
    registry: RunningRegistry, anew: Anew, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = registry.register("a", '"0"'), registry.register("a", '"1"')
    schemas = anew()

    assert schemas.version("a", 1) == Version("a", 1, first)
    assert schemas.version("a") == Version("a", 2, second)
    third = registry.register("a", '"2"')
    assert anew().version("a") == Version("a", 3, third)
    registry.stop()

    down = anew()
    assert (down.version("a"), down.version("a", 1)) == (Version("a", 3, third), Version("a", 1, first))
    assert down.by_ids([first, third]) == {first: Schema(first, "AVRO", '"0"'), third: Schema(third, "AVRO", '"2"')}
    assert "The known version 3 of a stays in use." in caplog.text
    with pytest.raises(RegistryUnavailable):
        down.version("a", 4)


def test_with_masks_by_tag_an_old_latest_version_does_not_stand_in_for_the_latest(
    registry: RunningRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version may have a tag that the known one lacks; a pinned version is what it is."""
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    registry.register("a", '"0"')
    latest, pinned = (RegistrySchemas(registry.described(), "a", version) for version in (None, 1))
    assert known_schemas(latest, needs_latest=True).reader == known_schemas(pinned).reader
    registry.stop()

    with pytest.raises(RegistryUnavailable):
        known_schemas(latest, needs_latest=True)
    assert known_schemas(latest).reader == known_schemas(pinned, needs_latest=True).reader


@pytest.mark.parametrize("masks", [{}, {"pii": Mask("null")}])
def test_a_stream_needs_the_latest_version_if_its_columns_are_masked_by_tag(
    registry: RunningRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masks: dict[str, Mask]
) -> None:
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    registry.register("a", '{"type": "object", "properties": {"id": {"type": "integer"}}}', type="JSON")
    format_ = JsonRegistry(RegistrySchemas(registry.described(), "a", None))
    stream = stream_of("", format=format_, mask_tagged=masks)
    decoder_of(stream)
    registry.stop()

    with pytest.raises(RegistryUnavailable) if masks else nullcontext():
        assert decoder_of(stream).record.names == ["id"]


def test_a_version_that_is_gone_is_refused_while_the_registry_answers(registry: RunningRegistry, anew: Anew) -> None:
    registry.register("a", '"0"')
    anew().version("a")
    registry.subjects.clear()

    with pytest.raises(SubjectVersionUnknown):
        anew().version("a")
