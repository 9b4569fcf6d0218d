"""The base classes of all errors: each error has fields, and a message in three parts.

The errors of a package are in its ``errors.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Self, dataclass_transform

AGAIN = "the same command again"
"""What to run where the error does not know the command that met it."""


_making = RLock()


class _FieldsAtFirstUse:
    """Stands for the fields of an error class until somebody asks for them, which makes the class a dataclass.

    Python compiles five methods for each dataclass. For all errors at their import, that would be a twentieth of the
    CPU of a small drain, which raises none of them.
    """

    def __get__(self, error: KdiError | None, of: type[KdiError]) -> Any:
        with _making:  # two threads may raise the first error of a class
            if vars(of)["__dataclass_fields__"] is self:
                dataclass(eq=False, kw_only=True)(of)  # which asks the base classes for theirs
        return vars(of)["__dataclass_fields__"]


@dataclass_transform(eq_default=False, kw_only_default=True)
@dataclass(eq=False, kw_only=True)  # eq=False keeps errors hashable; frozen would stop Python setting __traceback__
class KdiError(Exception):
    """Root of our errors; the fields of a subclass are what logs, run metadata and ``--json`` show.

    Every subclass is a dataclass with keyword-only fields. It sets the three texts, with its fields in braces, or
    overrides ``message_parts`` if the texts need code.
    """

    what_happened: ClassVar[str]
    what_is_safe: ClassVar[str]
    what_to_run: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__dataclass_fields__ = _FieldsAtFirstUse()  # type: ignore[assignment]

    def __new__(cls, *_: Any, **values: Any) -> Self:
        if "__init__" not in vars(cls):  # the last that a dataclass gets, so no other thread meets half of one
            with _making:
                fields(cls)
        return super().__new__(cls)

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
