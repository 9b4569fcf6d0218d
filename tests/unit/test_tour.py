"""The tour of the UI and its pictures belong together."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 150_000  # bytes; a clone carries every version of a picture for ever


def test_the_tour_shows_every_picture_and_every_picture_it_shows_is_there() -> None:
    shown = re.findall(r"!\[.+\]\(images/(.+?)\)", (DOCS / "tour.md").read_text())

    assert sorted(shown) == sorted(path.name for path in (DOCS / "images").iterdir())


def test_the_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}

    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}


def test_the_tests_of_the_ui_make_every_picture() -> None:
    tests = (DOCS.parent / "tests" / "browser" / "test_dagster_ui.py").read_text()

    assert sorted(re.findall(r'shot\("(\w+)"', tests)) == sorted(path.stem for path in (DOCS / "images").iterdir())
