"""The events of OpenLineage: a run of a stream reads its topic and writes its table and its dead letters; a refinement
reads its upstream tables and writes its table; a run of a served table reads its Delta table and writes a database.

Source: OpenLineage, "Naming" for namespaces and names, "Facets & Extensibility" for facets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    tags_dataset,
)

from kdi_assets.delta.column_types import table_fields, type_text
from kdi_assets.delta.storage import storage_uri
from kdi_assets.documents.model.connections.postgres_address import connection_parameters, host_port_database
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.listeners.column_lineage import InputFields
from kdi_assets.follow.listeners.heard import HeardCommit, HeardLedgerCommit, HeardTable
from kdi_assets.messages.formats.comments import tags_by_path
from kdi_assets.settings import Settings

PRODUCER = f"urn:kdi-assets:{metadata.version('kdi-assets')}"
DEFAULT_NAMESPACE = "kdi"


def run_event(
    state: str,
    at: datetime,
    kind: str,
    table: HeardTable,
    lake: str,
    *,
    run_id: str,
    parent: str = "",
    commits: Sequence[HeardCommit] = (),
    failure: BaseException | None = None,
    columns: Mapping[str, InputFields] | None = None,
) -> RunEvent:
    """One event of a run.

    Args:
        state: ``START``, ``COMPLETE``, ``FAIL`` or ``ABORT``.
        kind: As in ``RunListener``.
        parent: Dagster's run id; the event has no parent if it is empty, or no UUID.
        commits: The commits of the run so far.
        columns: Where the table's columns come from.
    """
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", DEFAULT_NAMESPACE)
    job_type = job_type_job.JobTypeJobFacet("BATCH", "KDI", kind.upper(), producer=PRODUCER)
    facets: dict[str, JobFacet] = {"jobType": job_type}
    inputs, outputs = _datasets(table, lake, commits, columns or {})
    return RunEvent(
        eventTime=at.isoformat(),
        eventType=RunState(state),
        producer=PRODUCER,
        run=Run(run_id, _run_facets(namespace, parent, failure)),
        job=Job(namespace, f"{table.name}.{kind}", facets),
        inputs=inputs,
        outputs=outputs,
    )


def _datasets(
    table: HeardTable,
    lake: str,
    commits: Sequence[HeardCommit],
    columns: Mapping[str, InputFields],
) -> tuple[list[InputDataset], list[OutputDataset]]:
    if isinstance(table, Stream):
        drained = cast(Sequence[HeardLedgerCommit], commits)  # all commits of a stream's table are
        return [_topic(table, drained)], _outputs(table, lake, drained, columns)
    uri = table.table_uri(lake)
    if isinstance(table, ServedTableSpec):
        return _served(table, uri, commits)
    # Each once: a table may be joined to itself.
    read = dict.fromkeys(dataset_name(upstream.table_uri(lake)) for upstream in table.upstreams)
    inputs = [InputDataset(*name) for name in read]
    if not commits:
        return inputs, [OutputDataset(*dataset_name(uri))]
    return inputs, [_written(uri, version=commits[-1].version, rows=sum(commit.rows for commit in commits))]


def _served(
    served: ServedTableSpec, uri: str, commits: Sequence[HeardCommit]
) -> tuple[list[InputDataset], list[OutputDataset]]:
    source, target = InputDataset(*dataset_name(uri)), OutputDataset(*_database_table(served))
    for commit in commits:
        source.facets = {"version": _version(commit.version)}
        target.outputFacets = {"outputStatistics": _statistics(commit.rows)}
    return [source], [target]


def _database_table(served: ServedTableSpec) -> tuple[str, str]:
    """Namespace and name of the table in the database; the embedded server has the host ``localhost``.

    Source: OpenLineage, "Naming", "Postgres"; for DuckDB, which it does not have, the names of its integration of dbt.
    """
    into = served.into
    if isinstance(into, DuckDb):
        file = Settings.from_environment().home / into.file
        return f"duckdb://{file}", f"{file.stem}.main.{into.table}"
    hosts, ports, database = host_port_database(connection_parameters(into.properties.get("url", "")))
    host, port = hosts.split(",")[0], ports.split(",")[0]
    server = "localhost" if not host or host.startswith("/") else host
    return f"postgres://{server}:{port}", f"{database or 'postgres'}.{into.schema}.{into.table}"


def dataset_name(uri: str) -> tuple[str, str]:
    """Namespace and name of a table by its location."""
    parts = urlsplit(storage_uri(uri))
    if parts.scheme in ("", "file"):
        return "file", str(Path(parts.path if parts.scheme else uri).absolute())
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")


def _run_facets(namespace: str, parent: str, failure: BaseException | None) -> dict[str, RunFacet]:
    version = metadata.version("kdi-assets")
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=metadata.version("pyspark"),
            name="spark",
            openlineageAdapterVersion=version,
            producer=PRODUCER,
        )
    }
    if _is_uuid(parent):
        job = parent_run.Job(namespace=namespace, name="dagster")
        facets["parent"] = parent_run.ParentRunFacet(run=parent_run.Run(parent), job=job, producer=PRODUCER)
    if failure is not None:
        # Texts of our errors are written for people and hold no message; those of others might.
        text = str(failure) if isinstance(failure, KdiError) else type(failure).__name__
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "PYTHON", producer=PRODUCER)
    return facets


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _topic(stream: Stream, commits: Sequence[HeardLedgerCommit]) -> InputDataset:
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=sum(c.messages for c in commits), size=sum(c.message_bytes for c in commits), producer=PRODUCER
    )
    drained = any(c.ranges for c in commits)
    return InputDataset(*_topic_name(stream), inputFacets={"inputStatistics": statistics} if drained else {})


def _topic_name(stream: Stream) -> tuple[str, str]:
    return f"{stream.cluster.system}://{stream.cluster.address.split(',')[0].strip()}", stream.topic


def _outputs(
    stream: Stream, lake: str, commits: Sequence[HeardLedgerCommit], columns: Mapping[str, InputFields]
) -> list[OutputDataset]:
    uri, letters_uri = stream.table_uri(lake), stream.dead_letters_uri(lake)
    if not commits:
        return [OutputDataset(*dataset_name(uri))]
    newest = commits[-1]
    rows, size = sum(c.rows for c in commits), sum(c.bytes for c in commits)
    table = _written(uri, version=newest.version, rows=rows, size=size)
    if columns:
        table.facets["columnLineage"] = _column_lineage(stream, columns)  # type: ignore[index]
    with_letters = [c for c in commits if c.letters_by_date or c.dead_letters]
    if not with_letters or with_letters[-1].dead_letters_at is None:
        return [table]
    written = sum(c.dead_letters or sum(c.letters_by_date.values()) for c in with_letters)
    letters = _written(letters_uri, version=with_letters[-1].dead_letters_at.version, rows=written)
    return [table, letters]


def _written(uri: str, *, version: int, rows: int, size: int | None = None) -> OutputDataset:
    columns = table_fields(uri)
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet([_field(f) for f in columns], producer=PRODUCER),
        "version": _version(version),
    }
    if tagged := tags_by_path(columns):
        tags = [
            tags_dataset.TagsDatasetFacetFields(key=tag, value="true", source="KDI", field=path)
            for path, names in tagged.items()
            for tag in names
        ]
        facets["tags"] = tags_dataset.TagsDatasetFacet(tags, producer=PRODUCER)
    return OutputDataset(
        *dataset_name(uri),
        facets=facets,
        outputFacets={"outputStatistics": _statistics(rows, size)},
    )


def _version(version: int) -> dataset_version_dataset.DatasetVersionDatasetFacet:
    return dataset_version_dataset.DatasetVersionDatasetFacet(str(version), producer=PRODUCER)


def _statistics(
    rows: int, size: int | None = None
) -> output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet:
    return output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows, size, producer=PRODUCER)


def _field(field: Mapping[str, Any]) -> schema_dataset.SchemaDatasetFacetFields:
    nested = field["type"]["fields"] if _is_struct(field["type"]) else []
    return schema_dataset.SchemaDatasetFacetFields(
        field["name"],
        "struct" if nested else type_text(field["type"]),
        field.get("metadata", {}).get("comment"),
        fields=[_field(inner) for inner in nested],
    )


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, Mapping) and type_["type"] == "struct"


def _column_lineage(
    stream: Stream, columns: Mapping[str, InputFields]
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    namespace, topic = _topic_name(stream)

    def fields(origin: InputFields) -> column_lineage_dataset.Fields:
        unchanged = not origin.expression and not origin.masked
        how = column_lineage_dataset.Transformation(
            type="DIRECT",
            subtype="IDENTITY" if unchanged else "TRANSFORMATION",
            description=origin.expression,
            masking=origin.masked,
        )
        return column_lineage_dataset.Fields(
            [column_lineage_dataset.InputField(namespace, topic, name, [how]) for name in origin.fields]
        )

    return column_lineage_dataset.ColumnLineageDatasetFacet(
        {column: fields(origin) for column, origin in columns.items()}, producer=PRODUCER
    )
