"""`dg scaffold defs`: a new document with its required fields, which `kdi check` takes."""

from __future__ import annotations

from typing import Any

import dagster as dg

import kdi_assets.components


class DocumentScaffolder(dg.Scaffolder):
    """Writes the examples that the fields' descriptions have, with the folder's name as the name of topic and table."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml``."""
        component = getattr(kdi_assets.components, request.type_name.rpartition(".")[2])
        schema = component.document_schema()
        properties = schema["properties"]
        folder = request.target_path.parent if request.append else request.target_path
        # A format can stand in for `schema`, so it is not among the required fields; most streams write it. Each topic
        # of many may have a `date` of its own.
        most_write = ("schema", "date") if "topics" in properties else ("schema",)
        fields = [name for name in properties if name in (*schema["required"], *most_write)]
        examples = {name: properties[name]["examples"][0] for name in fields}
        for name in {"topic", "stream_name"} & examples.keys():
            examples[name] = folder.name
        if "topics" in examples:
            examples["name"] = folder.name
        elif "table" in examples and "into" not in examples:  # a served table follows one that exists
            examples["table"] = f"{examples['table'].rpartition('/')[0]}/{folder.name}"
        dg.scaffold_component(request, examples)
