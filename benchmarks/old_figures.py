"""Names the figures of the documentation that are older than the code that they measure, page by page.

A chapter with figures names the command that measures them, and then says ``at commit `…` ``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DRAINS = (
    "kdi_assets/messages",
    "kdi_assets/streams/drain",
    "kdi_assets/streams/rules",
    "kdi_assets/jvm",
    "kdi_assets/streams/ledger",
    "kdi_assets/delta",
    "kdi_assets/runtime",
)
DEPLOYMENTS = ("sensors", "resources", "kdi_assets/components", "kdi_assets/operate/monitoring", *DRAINS)
MEASURES: Mapping[str, Sequence[str]] = {
    "make bench": DRAINS,
    "make demo": DEPLOYMENTS,
    "make dev": DEPLOYMENTS,
    "make soak": DEPLOYMENTS,
    "kdi jars": DRAINS,
    "python -m benchmarks.audit": ("kdi_assets/streams/audit", "kdi_assets/delta"),
    "python -m benchmarks.cluster": DRAINS,
    "python -m benchmarks.deployment": DEPLOYMENTS,
    "python -m benchmarks.idle_kinesis": ("kdi_assets/messages/kinesis", "sensors"),
    "python -m benchmarks.lake_on_s3": DRAINS,
    "python -m benchmarks.many_streams": DEPLOYMENTS,
    "python -m benchmarks.many_topics": DEPLOYMENTS,
    "python -m benchmarks.refining": ("kdi_assets/follow/refine", "kdi_assets/delta"),
    "python -m benchmarks.served_table": ("kdi_assets/follow/serve", "kdi_assets/delta"),
    "python -m benchmarks.several_drivers": DRAINS,
    "python -m benchmarks.upkeep": ("kdi_assets/operate/upkeep", "kdi_assets/delta"),
}
"""The code that decides the figures of a command."""

_COMMIT = re.compile(r"`([0-9a-f]{7,40})`")
_WORDS = re.compile(
    rf"^(#+) (.*)|({'|'.join(map(re.escape, MEASURES))}|\bat\s+commit\s+{_COMMIT.pattern.replace('(', '(?:')})", re.M
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures that a page states.

    Attributes:
        page: From the root of the checkout.
        section: The heading above them.
        command: The last of ``MEASURES`` that the chapter names before them; empty if it names none.
    """

    page: str
    section: str
    commit: str
    command: str


def stated_figures(root: Path) -> Iterator[Figures]:
    """All figures that README and documentation state with a commit."""
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        section = command = ""
        for level, heading, said in _WORDS.findall(page.read_text()):
            if level:
                section, command = heading, command if len(level) > len("##") else ""
            elif said in MEASURES:
                command = said
            elif said:
                yield Figures(page.relative_to(root).as_posix(), section, _COMMIT.findall(said)[0], command)


def old_figures(root: Path) -> list[str]:
    """A line for each page with figures of code that is another one now: sections, how old, and what measures them."""
    old: dict[str, list[str]] = {}
    for figures in stated_figures(root):
        if changes := _commits_since(root, figures.commit, MEASURES.get(figures.command, ())):
            old.setdefault(figures.page, []).append(f"“{figures.section}” ({changes} since; {figures.command})")
    return [f"{page} has figures of older code: {', '.join(sections)}" for page, sections in old.items()]


def _commits_since(root: Path, commit: str, folders: Sequence[str]) -> str:
    """How many commits changed these folders; empty for none."""
    command = ("git", "rev-list", "--count", f"{commit}..HEAD", "--", *folders)
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if found.returncode or not found.stdout.strip():
        return "a commit that this clone lacks"
    count = int(found.stdout)
    return f"{count} commit{'s' * (count != 1)}" if count else ""


if __name__ == "__main__":
    from rich.console import Console

    for line in old_figures(Path(__file__).resolve().parent.parent):
        Console(highlight=False, soft_wrap=True).print(line, markup=False)
