"""One name for one thing: a reader who searches for a class finds one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_two_classes_or_types_of_the_package_share_a_name() -> None:
    modules = [file for folder in ("kdi_assets", "sensors", "resources") for file in (ROOT / folder).rglob("*.py")]

    names = Counter(name for module in modules for name in _type_names(ast.parse(module.read_text())))

    assert len(names) > 500
    assert {name: n for name, n in names.items() if n > 1} == {}


def _type_names(module: ast.Module) -> Iterator[str]:
    """Classes, private ones too, and what is assigned to a name like a class's: aliases of types."""
    for statement in module.body:
        if isinstance(statement, ast.ClassDef):
            named = [statement.name]
        elif isinstance(statement, ast.Assign):
            named = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            named = [statement.target.id]
        else:
            continue
        yield from (name for name in named if name.lstrip("_")[:1].isupper() and not name.isupper())
