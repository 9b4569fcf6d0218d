"""Properties of clusters and registries whose values come from the environment: secrets, which belong in no file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kdi_assets.errors import Terminal


@dataclass(eq=False, kw_only=True)
class EnvironmentVariableMissing(Terminal):
    """A client property is to come from an environment variable that is not set."""

    of: str
    property: str
    variable: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.of}: {self.property} comes from the environment variable {self.variable}, which is not set.",
            "nobody was asked; no topic and no table was touched.",
            f"the same command with {self.variable} set",
        )


@dataclass(frozen=True)
class EnvironmentProperties(Mapping[str, str]):
    """Client properties, some of them read from the environment at the moment of use.

    At use, not at load: a check of the documents needs no secrets, and neither a message nor a log that shows the
    cluster or the registry can show them.

    Attributes:
        of: Whose they are, for the error: ``cluster main``, ``registry main``.
        written: Properties with their values.
        variables: Properties with the environment variable that holds their value.
    """

    of: str
    written: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        """The value of a property.

        Raises:
            EnvironmentVariableMissing: It comes from a variable that is not set.
        """
        if name not in self.variables:
            return self.written[name]
        variable = self.variables[name]
        if variable not in os.environ:
            raise EnvironmentVariableMissing(of=self.of, property=name, variable=variable)
        return os.environ[variable]

    def __iter__(self) -> Iterator[str]:
        yield from self.written
        yield from self.variables

    def __len__(self) -> int:
        return len(self.written) + len(self.variables)
