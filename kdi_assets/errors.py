"""The base classes of all errors: each error has fields, and a message in three parts.

The errors of a package are in its ``errors.py``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any, ClassVar, dataclass_transform

AGAIN = "the same command again"
"""What to run where the error does not know the command that met it."""


@dataclass_transform(eq_default=False, kw_only_default=True)
@dataclass(init=False, repr=False, eq=False, match_args=False)
class KdiError(Exception):
    """Root of our errors; the fields of a subclass are what logs, run metadata and ``--json`` show.

    Every subclass is a dataclass with keyword-only fields, without the methods that Python would compile for each one:
    they would take a quarter of the CPU of ``kdi drain``, which raises no error. It sets the three texts, with its
    fields in braces, or overrides ``message_parts`` if the texts need code.
    """

    what_happened: ClassVar[str]
    what_is_safe: ClassVar[str]
    what_to_run: ClassVar[str]
    is_repeatable: ClassVar[bool] = True
    """Whether the same command again goes on; if not, no error that advises it may take the place of this one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)(cls)

    def __init__(self, **values: Any) -> None:
        super().__init__()
        given = {f.name: f.default for f in fields(self) if f.default is not MISSING} | values
        if given.keys() != {f.name for f in fields(self)}:
            wrong = ", ".join(sorted(given.keys() ^ {f.name for f in fields(self)}))
            raise TypeError(f"{type(self).__name__}: {wrong}: missing or unknown")
        vars(self).update(given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"

    def message_parts(self) -> tuple[str, str, str]:
        """What happened, what is safe, which command to run next."""
        happened, safe, run = (
            text.format_map(vars(self)) for text in (self.what_happened, self.what_is_safe, self.what_to_run)
        )
        return happened, safe, run

    def __str__(self) -> str:
        happened, safe, run = self.message_parts()
        return f"{happened}\n  Safe: {safe}\n  Run:  {run}"

    def __reduce__(self) -> tuple[object, ...]:
        # Python unpickles exceptions by position and ours have keywords only: from a worker they would be TypeErrors.
        return partial(type(self), **{f.name: getattr(self, f.name) for f in fields(self)}), ()


class Transient(KdiError):
    """A retry can help; the next plan starts from the table's ledger."""


class Terminal(KdiError):
    """A retry cannot help; someone must decide."""
