"""The tables, for assets of the project."""

import dagster as dg
from deltalake import DeltaTable


class Lake(dg.ConfigurableResource):
    """Opens tables below a root, a path or a URI."""

    root: str

    def table(self, name: str) -> DeltaTable:
        """The table at its newest version."""
        return DeltaTable(f"{self.root}/{name}")
