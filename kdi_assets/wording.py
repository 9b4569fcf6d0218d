"""Texts for people: durations, counts, sizes, names, close matches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Literal
from urllib.parse import unquote, urlsplit

KIB = 1024
_ON_S3 = {"s3", "s3a"}


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    units: tuple[tuple[Literal["d", "h", "min", "s"], int], ...] = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    left = round(seconds)
    for i, (unit, size) in enumerate(units):
        if left >= size and unit != "s":
            smaller, smaller_size = units[i + 1]
            rest = left % size // smaller_size
            return f"{left // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"


BROKER = r"(\[[0-9A-Fa-f:]+\]|[^\s,:/]+):\d{1,5}"
"""How a broker is written, host:port: a regular expression."""


def printable(text: str) -> str:
    """The text with control characters escaped: a message must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(number: int, thing: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def arrived_between(since: int, until: int) -> str:
    """Which records may be missing; both moments are in milliseconds since 1970."""
    first, last = (datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds") for at in (since, until))
    return f"records that arrived between {first} and {last} may be missing".replace("+00:00", "Z")


def byte_size(size: float) -> str:
    """``512 B``, ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIB
    return f"{size:,.1f} TiB"


def first_line(said: object) -> str:
    """The first line of a text, or of an error's message; an error without a message is the name of its class."""
    lines = str(said).strip().splitlines() or ["" if isinstance(said, str) else type(said).__name__]
    return lines[0]


def sql_command(statement: str) -> str:
    """The command that runs a statement of Spark SQL; texts in the statement stand in double quotes."""
    return f"kdi sql {shlex.quote(statement)}"


def storage_command(verb: Literal["ls", "mkdir", "mv"], *uris: str) -> str:
    """The command for folders of the lake: AWS's on S3, the shell's for paths, otherwise Hadoop's.

    Args:
        verb: To list a folder, to make one, or to move one (from, to).
    """
    schemes = {urlsplit(uri).scheme for uri in uris} - {"", "file"}
    quoted = " ".join(map(_quoted, uris))
    if schemes & _ON_S3:
        return f"aws s3 {verb}{' --recursive' * (verb == 'mv')} {quoted}"
    made = f"{verb}{' -p' * (verb == 'mkdir')} {quoted}"
    return f"hadoop fs -{made}" if schemes else made


def moving_commands(moves: Sequence[tuple[str, str]]) -> list[str]:
    """The commands that move folders of the lake (from, to), in this order; their new parent folder is made first."""
    parents = {to.rpartition("/")[0] for old, to in moves if old.rpartition("/")[0] != to.rpartition("/")[0]}
    missing = sorted(parent for parent in parents if urlsplit(parent).scheme not in _ON_S3)
    return [
        *(storage_command("mkdir", parent) for parent in missing),
        *(storage_command("mv", *move) for move in moves),
    ]


def removing_command(folder: str, patterns: Iterable[str]) -> str:
    """The command that removes files of a folder of the lake, by patterns of their names."""
    if urlsplit(folder).scheme in _ON_S3:
        chosen = " ".join(f"--include {shlex.quote(pattern)}" for pattern in patterns)
        return f"aws s3 rm --recursive {_quoted(folder)} --exclude '*' {chosen}"
    remove = "rm" if urlsplit(folder).scheme in ("", "file") else "hadoop fs -rm"
    return f"{remove} {' '.join(f'{_quoted(folder)}/{pattern}' for pattern in patterns)}"


def _quoted(uri: str) -> str:
    """The address for a shell, as the command of its storage spells it."""
    parts = urlsplit(uri)
    spelled = {"file": unquote(parts.path), "s3a": f"s3:{uri.removeprefix('s3a:')}"}
    return shlex.quote(spelled.get(parts.scheme, uri))


def kind_in_words(thing: object) -> str:
    """The name of the object's class in words: ``RetentionPassedPosition`` is retention passed position."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(thing).__name__).lower()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The closest match of ``word`` among ``known``, or else all of them, up to 20."""
    names = sorted(known)
    longer = [name for name in names if len(word) > 2 and name.startswith(word)]
    if close := get_close_matches(word, names, n=1) or longer:
        return f"did you mean {close[0]}?"
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return f"known: {', '.join(names[:20])}{more}" if names else "there is none"
