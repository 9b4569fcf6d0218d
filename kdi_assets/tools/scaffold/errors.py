"""Errors of `kdi new`."""

from __future__ import annotations

from kdi_assets.errors import Terminal


class NothingProposed(Terminal):
    """The topic cannot be sampled, or the document cannot be written."""

    topic: str
    why: str
    run: str

    what_happened = "{why}"
    what_is_safe = "nothing was written; the topic was only read."
    what_to_run = "{run}"


class NotRegistered(Exception):
    """The registry has no schema that explains the messages; the argument says why."""


class NoRecord(Exception):
    """A message is not a record; the arguments are the decoder's reason, and the field if there is one."""
