"""What Dagster loads: the tables of the documents, and the project's own assets."""

from pathlib import Path

import dagster as dg
from kdi_assets.definitions import definitions_for

from shop.assets import requests_per_host


@dg.definitions
def defs() -> dg.Definitions:
    return definitions_for(Path(__file__).parent / "defs", dg.Definitions(assets=[requests_per_host]))
