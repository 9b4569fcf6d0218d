"""Adapters: files that say by which commands a writer is started and stopped, and where its rows are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kdi_assets.tools.conformance.errors import UnknownName
from kdi_assets.tools.conformance.yaml_file import FileModel, read_file

FOLDER = Path(__file__).with_name("adapters")
Command = Annotated[tuple[str, ...], Field(min_length=1)]
PLACEHOLDERS = ("python", "kafka", "topic", "table", "work", "home", "writer", "pid", "output")


class Service(FileModel):
    """A process that the writer needs, such as a JVM that serves several starts.

    Attributes:
        run: Runs it in the foreground.
        ready: Ends with exit code 0 as soon as it serves.
        seconds: At most so long until it is ready.
    """

    run: Command
    ready: Command
    seconds: float = 180


class NewTable(FileModel):
    """A table that a writer expects to exist.

    Attributes:
        uri: With words in braces.
        columns: Name to type, as delta-rs writes it: ``string``, ``long``, ``double``, ``date``, …
        partition_by: Of the columns.
    """

    uri: str = "{table}"
    columns: Annotated[Mapping[str, str], Field(min_length=1)]
    partition_by: tuple[str, ...] = ()


class Adapter(FileModel):
    """How the suite drives one writer. The words in braces that commands may contain are documented in
    docs/conformance.md.

    Attributes:
        title: For the table of results.
        runs: Whether ``start`` ends by itself when it has caught up.
        start: Runs the writer in the foreground: topic ``{topic}`` of ``{kafka}`` into the table ``{table}``. An exit
            code other than 0 is an error.
        stop: Asks the process ``{pid}``, which ``start`` is, to flush and end.
        table: Prints JSON: where rows and dead letters are, and in which columns (``layout.Layout``).
        decide: Runs after ``start`` ended with an error, whose output is in the file ``{output}``: does what the
            writer's documentation says, and prints in one line what; exit code 1 if there is nothing to decide.
        service: A process beside the writer.
        create_tables: The tables that the writer does not create itself.
        environment: More variables for all commands.
        error: Finds the error in the output of a ``start``: a regular expression with one group.
        versions: Prints the versions of the writer's parts, in one line.
        start_seconds: A ``start`` that takes longer is killed; for a writer that is stopped: to catch up.
        stop_seconds: The same for the end of a process that was asked to end.
        quiet_seconds: A writer that is stopped has caught up if its table and its output do not change for so long.
        consumer_group: By which the writer is given topic partitions; while it does not hold all, it has not caught up.
    """

    name: str = ""
    title: str
    runs: Literal["until caught up", "until stopped"]
    start: Command
    stop: Command
    table: Command
    decide: Command | None = None
    service: Service | None = None
    create_tables: tuple[NewTable, ...] = ()
    environment: Mapping[str, str] = Field(default_factory=dict)
    error: str = r"([^\n]+)\s*\Z"
    versions: Command | None = None
    start_seconds: float = 120
    stop_seconds: float = 30
    quiet_seconds: float = 15
    consumer_group: str = ""

    def environment_with(self, words: Mapping[str, object]) -> dict[str, str]:
        """``environment`` with the words in braces filled in."""
        return {name: value.format_map(words) for name, value in self.environment.items()}

    @field_validator("start", "stop", "table", "decide", "versions")
    @classmethod
    def _known_words(cls, command: Command | None) -> Command | None:
        for part in command or ():
            try:
                part.format_map(dict.fromkeys(PLACEHOLDERS, ""))
            except (KeyError, ValueError, IndexError) as unknown:
                raise ValueError(
                    f"{part!r}: {unknown} is not a word for braces; write {{{{ and }}}} for braces themselves, or one "
                    f"of {', '.join(PLACEHOLDERS)}"
                ) from unknown
        return command


def filled(command: Sequence[str], words: Mapping[str, object]) -> list[str]:
    """The command with its words in braces replaced."""
    return [part.format_map({"python": sys.executable, **words}) for part in command]


def adapter_names() -> tuple[str, ...]:
    """The adapters that come with the suite."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load_adapter(name: str) -> Adapter:
    """An adapter by its name, or by the path of its file.

    Raises:
        UnknownName: There is none.
        FileMistakes: Its file is wrong.
    """
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise UnknownName(kind="adapter", name=name, known=adapter_names())
    adapter = read_file(path, Adapter)
    return adapter.model_copy(update={"name": adapter.name or path.stem})
