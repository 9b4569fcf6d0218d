"""What a look at a stream cannot tell."""

from __future__ import annotations

from kdi_assets.errors import AGAIN, Transient


class BacklogNotKnownYet(Transient):
    """Not every topic partition was looked at to its end, so nobody knows whether a message waits."""

    stream: str

    what_happened = "not all of {stream} was looked at to the end yet: nobody knows whether a message waits."
    what_is_safe = "the table is untouched."
    what_to_run = AGAIN
