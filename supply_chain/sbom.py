"""`make sbom`: the locked packages and jars as a software bill of materials, CycloneDX in JSON."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as BomComponent
from cyclonedx.model.component import ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from supply_chain.bundled import with_bundled
from supply_chain.locks import ROOT, Component, locked_components


def sbom(components: Iterable[Component], *, name: str, version: str) -> str:
    """The document's text.

    Args:
        name, version: Of what they are components of.
    """
    bom = Bom(components=[_described(component) for component in components])
    bom.metadata.component = BomComponent(
        type=ComponentType.APPLICATION, name=name, version=version, bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
    )  # fmt: skip
    # The locks do not say who needs what, so everything is a part of the whole.
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _described(component: Component) -> BomComponent:
    group, _, name = component.name.rpartition(":")
    type_ = component.ecosystem.lower() if component.is_known else "generic"
    purl = PackageURL(type_, group or None, name, component.version)
    return BomComponent(
        type=ComponentType.LIBRARY, group=group or None, name=name, version=component.version, purl=purl,
        bom_ref=purl.to_string(), scope=ComponentScope(component.need),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256) for sha256 in component.sha256],
        properties=[Property(name="kdi:inside", value=component.inside)] if component.inside else (),
    )  # fmt: skip


def main() -> None:
    """Write the SBOM of this checkout into the file that is given."""
    target = Path(sys.argv[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    components = with_bundled(locked_components())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(sbom(components, name=project["name"], version=project["version"]) + "\n")
    needs = [component.need for component in components]
    parts = ", ".join(f"{needs.count(need)} {need}" for need in ("required", "optional", "excluded"))
    sys.stderr.write(f"{target}: {len(components)} components ({parts})\n")


if __name__ == "__main__":
    main()
