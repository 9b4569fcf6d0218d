"""Errors of the suite itself. What a writer does wrong is a verdict, not an error."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.errors import AGAIN, Terminal, Transient

NOTHING_RAN = "no writer was started."


class FileMistakes(Terminal):
    """A scenario's or an adapter's file, or what `table` printed, cannot be used.

    Attributes:
        place: The file, or the command.
        mistakes: One line each, with the line in the file where there is one.
    """

    place: str
    mistakes: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return "\n".join(f"{self.place}{mistake}" for mistake in self.mistakes), NOTHING_RAN, "the same command again"


class UnknownName(Terminal):
    """There is no adapter or scenario of this name."""

    kind: str
    name: str
    known: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        other = "or the path of an adapter's file ending in .yaml, " if self.kind == "adapter" else ""
        return (
            f"there is no {self.kind} {self.name!r}",
            NOTHING_RAN,
            f"{AGAIN}   (with {other}one of: {', '.join(self.known)})",
        )


class CommandFailed(Terminal):
    """A command of the adapter, other than ``start``, ended with an error or printed something else than it must."""

    adapter: str
    command: str
    detail: str

    what_happened = "{adapter}: its command `{command}` failed: {detail}"
    what_is_safe = "topics and tables of the run are of the suite alone; results of earlier scenarios are kept."
    what_to_run = "the same command again   (first the command by hand, as the adapter's file has it)"


class ServiceDied(Terminal):
    """The process that an adapter names as its service ended, or did not become ready."""

    adapter: str
    ending: str
    log: Path
    tail: str

    what_happened = "{adapter}: its service {ending}. The end of {log}:\n{tail}"
    what_is_safe = NOTHING_RAN
    what_to_run = "the same command again   (first the service's command by hand, as the adapter's file has it)"


class BrokerTimedOut(Transient):
    """The broker did not do in time what a scenario needs, such as compacting a topic."""

    topic: str
    awaited: str
    seconds: float

    what_happened = "{topic}: within {seconds:.0f} s the broker did not do this: {awaited}."
    what_is_safe = "the writer was not judged; results of earlier scenarios are kept."
    what_to_run = "the same command again   (without --kafka it starts a broker that does it fast)"


class NotDelivered(Transient):
    """The broker did not acknowledge messages, so nobody knows what the topic holds."""

    topic: str
    reason: str

    what_happened = "{topic}: messages were not acknowledged: {reason}"
    what_is_safe = "the writer was not judged; results of earlier scenarios are kept."
    what_to_run = "the same command again   (with a broker that answers)"
