"""The wheel has one package: projects of Dagster have folders `resources` and `sensors` of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINKED = ("resources", "sensors")
OURS = ("kdi_assets", *LINKED, "examples", "benchmarks", "supply_chain", "tests", "docs", "deploy")
TEXTS = {".py", ".md", ".yaml", ".toml", ".service", ".tf"}


def test_nothing_names_the_linked_folders_as_packages_of_their_own() -> None:
    """A module that is imported under two names exists twice, with two states."""
    modules = "|".join(path.stem for folder in LINKED for path in (ROOT / folder).glob("[a-z]*.py"))
    old = re.compile(rf"(?<![\w./])({'|'.join(LINKED)})\.({modules})\b|^ *(from|import) ({'|'.join(LINKED)})\b", re.M)

    found = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in OURS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in TEXTS
        for match in old.finditer(path.read_text(encoding="utf-8"))
    }

    assert found == set()


def test_the_code_location_loads_beside_packages_of_the_same_names(tmp_path: Path) -> None:
    for name in LINKED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the project')")
    names = f"sorted(name for name in sys.modules if name.split('.')[0] in {LINKED})"
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kdi_assets.definitions; print({names})"

    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (ran.stdout, ran.stderr) == ("[]\n", "")
