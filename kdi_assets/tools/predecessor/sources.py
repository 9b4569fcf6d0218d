"""Where a command line of kafka-delta-ingest is written: a file of shell text, a file of variables, a Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kdi_assets.documents.loading.folder import display_path
from kdi_assets.tools.predecessor.command import PROGRAM, SUBCOMMAND, Word
from kdi_assets.tools.predecessor.errors import CommandNotRead

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_DOCKER_ENV = ("-e", "--env")


@dataclass
class Written:
    """What a source says: the words of a command line, and environment variables by name."""

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)


def arguments(words: list[str]) -> Written:
    """The words after ``--`` of our own command line, which the shell has expanded."""
    return Written([Word(text, f"argument {n}", is_expanded=True) for n, text in enumerate(words, start=1)])


def read_env_file(path: Path) -> Written:
    """A file of lines ``NAME=value``, as ``docker run --env-file`` and shells read them.

    Raises:
        CommandNotRead: The file cannot be read, or a line is neither.
    """
    written = Written()
    for number, line in enumerate(_text(path).splitlines(), start=1):
        text, where = line.strip().removeprefix("export "), f"{display_path(path)}:{number}"
        if not text or text.startswith("#"):
            continue
        if not (found := ASSIGNMENT.fullmatch(text)):
            raise CommandNotRead(
                where=where, why="is not NAME=value", right="the same command, with that line corrected"
            )
        quoted = re.fullmatch(r"\"(.*)\"|'(.*)'", found[2].strip())
        value = (quoted[1] or quoted[2] or "") if quoted else found[2].strip()
        written.variables[found[1]] = Word(value, where)
    return written


def read_command_file(path: Path) -> Written:
    """A file of shell text with one call of ``kafka-delta-ingest ingest``; also one of ``docker run`` or ``cargo run``.

    Variables before the call, in ``export`` lines and in ``docker run -e`` belong to its environment. Nothing is run,
    and no variable is expanded.

    Raises:
        CommandNotRead: The file cannot be read, or has no call.
    """
    written = Written()
    for number, line in _logical_lines(_text(path), continued="\\^"):
        where = f"{display_path(path)}:{number}"
        texts = _split(line, where)
        if not texts or texts[0] == "#!":
            continue
        is_call = SUBCOMMAND in texts or any(text.rpartition("/")[2] == PROGRAM for text in texts)
        before = texts[: texts.index(SUBCOMMAND)] if SUBCOMMAND in texts else texts if not is_call else []
        if is_call or texts[0] in ("export", "set", "ENV") or all(ASSIGNMENT.fullmatch(text) for text in texts):
            written.variables |= _assignments(before, where)
        if is_call and not written.words:
            written.words = [Word(text, where) for text in texts]
    if not written.words:
        right = "the same command with a file that calls `kafka-delta-ingest ingest`"
        raise CommandNotRead(where=display_path(path), why="no call of kafka-delta-ingest is in it", right=right)
    return written


def read_dockerfile(path: Path) -> Written:
    """A Dockerfile: its ``ENV`` lines, and the words of ``ENTRYPOINT`` and ``CMD`` of its last stage.

    Raises:
        CommandNotRead: The file cannot be read.
    """
    stages: dict[str, Written] = {}
    stage, entry, command = Written(), list[Word](), list[Word]()
    for number, line in _logical_lines(_text(path), continued="\\"):
        where = f"{display_path(path)}:{number}"
        instruction, _, rest = line.strip().partition(" ")
        match instruction.upper():
            case "FROM":
                base, *named = [text for text in rest.split() if not text.startswith("--")]
                stage, entry, command = Written(variables=dict(stages.get(base, Written()).variables)), [], []
                stages[named[1] if len(named) == 2 else base] = stage
            case "ENV":
                stage.variables |= _env_of(rest.strip(), where)
            case "ENTRYPOINT":
                entry = _exec_or_shell(rest.strip(), where)
            case "CMD":
                command = _exec_or_shell(rest.strip(), where)
    return Written([*entry, *command], stage.variables)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failed:
        why = f"cannot be read: {failed}"
        raise CommandNotRead(where=display_path(path), why=why, right="the same command with another file") from failed


def _logical_lines(text: str, *, continued: str) -> Iterator[tuple[int, str]]:
    """Lines, joined where one ends with a character of ``continued``; with the number of the first one."""
    first, line = 0, ""
    for number, part in enumerate(text.splitlines(), start=1):
        if not line:
            first = number
            if part.strip().startswith("#"):
                continue
        line += part
        if line.rstrip()[-1:] and line.rstrip()[-1] in continued:
            line = line.rstrip()[:-1] + " "
            continue
        yield first, line
        line = ""
    if line:
        yield first, line


def _split(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as wrong:
        why = f"is not a command line: {str(wrong).lower()}"
        raise CommandNotRead(where=where, why=why, right="the same command, with that line corrected") from wrong


def _assignments(texts: list[str], where: str) -> dict[str, Word]:
    """Assignments before a call: ``NAME=value``, and values of ``-e`` and ``--env``."""
    found = {}
    for n, text in enumerate(texts):
        text = text.removeprefix("--env=")
        is_place = n == 0 or texts[n - 1] in _DOCKER_ENV or not texts[n - 1].startswith("-")
        if is_place and (matched := ASSIGNMENT.fullmatch(text)):
            found[matched[1]] = Word(matched[2], where)
    return found


def _env_of(rest: str, where: str) -> dict[str, Word]:
    if not ASSIGNMENT.match(rest.split(" ")[0]):  # the old form, ENV NAME value
        name, _, value = rest.partition(" ")
        return {name: Word(value.strip(), where)}
    return _assignments(_split(rest, where), where)


def _exec_or_shell(rest: str, where: str) -> list[Word]:
    try:
        texts = json.loads(rest) if rest.startswith("[") else _split(rest, where)
    except json.JSONDecodeError:
        texts = _split(rest, where)
    if len(texts) > 2 and texts[1] == "-c":  # a shell with its command line as one word
        texts = _split(str(texts[2]), where)
    return [Word(str(text), where) for text in texts]
