"""What `kdi doctor` says of a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.doctor.finding import Verdict
from kdi_assets.doctor.registry import registry as look
from kdi_assets.formats.registry.refusals import RegistryAccessRefused
from kdi_assets.formats.registry.schemas import Schemas
from tests.fake_registry import RunningRegistry


def test_a_registry_that_answers_is_fine(registry: RunningRegistry, tmp_path: Path) -> None:
    (finding,) = look(registry.described(), tmp_path)

    assert (finding.examination, finding.of, finding.verdict) == ("registry", "main", Verdict.OK)
    assert finding.found.startswith("AVRO, JSON, PROTOBUF, ")
    assert finding.facts["known_schemas"] == 0


@pytest.mark.parametrize(("known", "verdict"), [(0, Verdict.WRONG), (1, Verdict.WARNING)])
def test_a_registry_that_is_down_stands_in_the_way_only_where_nothing_is_known(
    registry: RunningRegistry, tmp_path: Path, known: int, verdict: Verdict
) -> None:
    for n in range(known):
        Schemas(registry.described(), home=tmp_path).by_id(registry.register("a", f'"{n}"'))
    registry.stop()

    (finding,) = look(registry.described(), tmp_path)

    assert (finding.verdict, finding.facts) == (verdict, {"known_schemas": known})
    assert finding.found == f"registry unavailable; {known} schema{'' if known == 1 else 's'} known"


def test_refused_credentials_are_a_refusal(registry: RunningRegistry, tmp_path: Path) -> None:
    registry.users = {"kdi": "hush"}

    with pytest.raises(RegistryAccessRefused):
        list(look(registry.described(username="kdi", password="wrong"), tmp_path))
