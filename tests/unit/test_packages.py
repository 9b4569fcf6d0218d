"""The wheel: one package, imports that are the declared ones, and versions that other projects can satisfy."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kdi_assets.documents.loading.errors import DefsFolderNotNamed
from kdi_assets.documents.loading.loader import defs_folder

ROOT = Path(__file__).parents[2]
LINKED = ("resources", "sensors")
OURS = ("kdi_assets", *LINKED, "demo", "examples", "benchmarks", "supply_chain", "tests", "docs", "deploy")
TEXTS = {".py", ".md", ".yaml", ".toml", ".service", ".tf"}
PROJECT_OF_ITS_OWN = ROOT / "examples" / "two_locations"
"""It has folders with these names."""
IN_NAMESPACES = {"google.protobuf": "protobuf", "google.type": "googleapis-common-protos"}
"""Packages of one distribution in a package of several."""
NAMED = {"dagster-aws", "ministack"}
NOT_IMPORTED = {"pandas"}
"""PySpark asks for it where a function gets Arrow's columns."""
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_nothing_names_the_linked_folders_as_packages_of_their_own() -> None:
    """A module that is imported under two names exists twice, with two states."""
    modules = "|".join(path.stem for folder in LINKED for path in (ROOT / folder).glob("[a-z]*.py"))
    old = re.compile(rf"(?<![\w./])({'|'.join(LINKED)})\.({modules})\b|^ *(from|import) ({'|'.join(LINKED)})\b", re.M)

    found = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in OURS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in TEXTS and PROJECT_OF_ITS_OWN not in path.parents
        for match in old.finditer(path.read_text(encoding="utf-8"))
    }

    assert found == set()


def test_a_project_of_its_own_imports_nothing_of_ours() -> None:
    modules = [ast.parse(path.read_text(encoding="utf-8")) for path in PROJECT_OF_ITS_OWN.rglob("*.py")]

    imported = {name for module in modules for name in _modules(module)}

    assert {"resources.lake", "sensors.new_requests"} <= imported
    assert {name for name in imported if name.partition(".")[0] == "kdi_assets"} == set()


def test_the_code_location_loads_beside_packages_of_the_same_names(tmp_path: Path) -> None:
    for name in LINKED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the project')")
    names = f"sorted(name for name in sys.modules if name.split('.')[0] in {LINKED})"
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kdi_assets.definitions; print({names})"

    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    needed = _names(PROJECT["dependencies"])
    extras: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
    optional = _names(line for extra in ("deployment", "duckdb", "embedded", "openlineage") for line in extras[extra])

    imported = set(_imported())

    assert imported - needed == optional - NAMED, "these are servers that are started, or named in dagster.yaml"
    assert needed - imported == NOT_IMPORTED


def test_no_dependency_is_pinned_and_each_of_dagster_spark_and_delta_has_a_limit() -> None:
    requirements = [Requirement(line) for line in PROJECT["dependencies"]]

    assert [str(each) for each in requirements if "==" in str(each.specifier)] == []
    limited = {each.name for each in requirements if "<" in str(each.specifier)}
    assert {"dagster", "dagster-pyspark", "dagster-spark", "delta-spark", "deltalake", "pyspark"} <= limited


def test_an_installed_package_has_no_documents_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDI_DEFS", raising=False)
    assert defs_folder() == ROOT / "kdi_assets" / "defs", "a checkout has those of the demo"

    installed = tmp_path / "kdi_assets" / "documents" / "loading" / "loader.py"
    monkeypatch.setattr("kdi_assets.documents.loading.loader.__file__", str(installed))

    with pytest.raises(DefsFolderNotNamed, match="KDI_DEFS is not set"):
        defs_folder()


def _imported() -> Iterator[str]:
    """The distributions of all imports of the package, at the top of a module or in a function."""
    distributions = packages_distributions()
    for folder in ("kdi_assets", *LINKED):
        for path in (ROOT / folder).rglob("*.py"):
            for name in _modules(ast.parse(path.read_text(encoding="utf-8"))):
                top, namespace = name.partition(".")[0], ".".join(name.split(".")[:2])
                if namespace in IN_NAMESPACES:
                    yield IN_NAMESPACES[namespace]
                elif top not in sys.stdlib_module_names and top != "kdi_assets":
                    (distribution,) = set(distributions.get(top, [top]))  # not every Python has pgserver
                    yield canonicalize_name(distribution)


def _modules(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _names(lines: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}
