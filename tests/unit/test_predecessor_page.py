"""docs/kafka-delta-ingest.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "kafka-delta-ingest.md"


def test_every_test_that_a_scenario_is_held_by_is_there() -> None:
    last, missing, named = "", [], 0
    for file, test in re.findall(r"`(test_\w+\.py|…)(?:::(test_\w+…?))?`", PAGE.read_text()):
        last = last if file == "…" else file
        texts = [path.read_text() for path in TESTS.rglob(last)]
        wanted = f"def {test.removesuffix('…')}" if test.endswith("…") else f"def {test}("
        named += 1
        if not texts or (test and not any(wanted in text for text in texts)):
            missing.append(f"{last}::{test}")

    assert missing == []
    assert named > 20
