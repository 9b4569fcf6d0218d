"""The base classes of all errors: each error has fields, and a message in three parts.

The errors of a package are in its ``errors.py``.
"""

from __future__ import annotations

from functools import partial
from inspect import get_annotations
from typing import Any, ClassVar, dataclass_transform

AGAIN = "the same command again"
"""What to run where the error does not know the command that met it."""


@dataclass_transform(eq_default=False, kw_only_default=True)
class KdiError(Exception):
    """Root of our errors; the fields of a subclass are what logs, run metadata and ``--json`` show.

    A subclass declares its fields as a dataclass does, and takes them as keywords. It is not one: compiling the methods
    of all errors would take a quarter of the CPU of ``kdi drain``, which raises none of them. It sets the three texts,
    with its fields in braces, or overrides ``message_parts`` if the texts need code.
    """

    what_happened: ClassVar[str]
    what_is_safe: ClassVar[str]
    what_to_run: ClassVar[str]

    def __init__(self, **values: Any) -> None:
        super().__init__()
        names = self.field_names()
        given = {name: getattr(type(self), name) for name in names if hasattr(type(self), name)} | values
        if given.keys() != set(names):
            wrong = ", ".join(sorted(given.keys() ^ set(names)))
            raise TypeError(f"{type(self).__name__}: {wrong}: missing or unknown")
        vars(self).update(given)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """The fields of this class, those of its base classes first."""
        declared = [get_annotations(of) for of in reversed(cls.__mro__) if issubclass(of, KdiError)]
        return tuple({name: None for each in declared for name, kind in each.items() if "ClassVar" not in str(kind)})

    def values(self) -> dict[str, Any]:
        """Each field's name and value."""
        return {name: getattr(self, name) for name in self.field_names()}

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
        return partial(type(self), **self.values()), ()


class Transient(KdiError):
    """A retry can help; the next plan starts from the table's ledger."""


class Terminal(KdiError):
    """A retry cannot help; someone must decide."""
