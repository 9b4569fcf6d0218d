"""The components: Dagster creates them from the documents, which ``documents.loading.loader`` reads."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import dagster as dg
from pydantic import BaseModel, RootModel

from kdi_assets.components.new_document import DocumentScaffolder
from kdi_assets.components.refined_asset import refined_definitions
from kdi_assets.components.served_asset import served_asset
from kdi_assets.components.table_asset import stream_definitions
from kdi_assets.documents.loading.errors import DocumentMistake, Mistakes
from kdi_assets.documents.loading.folder import display_path
from kdi_assets.documents.loading.loader import LoadedFolder, cached_streams
from kdi_assets.documents.loading.served_documents import written_name
from kdi_assets.documents.loading.topic_tables import topic_tables_schema
from kdi_assets.documents.loading.validation import json_schema
from kdi_assets.documents.loading.yaml_documents import sorted_mistakes
from kdi_assets.documents.model.connections.connections import Cluster, Registry
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.topic_tables import TopicTablesSpec
from kdi_assets.settings import Settings


@dg.scaffold_with(DocumentScaffolder)
class _DocumentComponent(dg.Component, dg.Resolvable):
    """A component with a JSON Schema for Dagster, whose attributes stay as written.

    Dagster would render every string as a template, and lose quotes, comments and types of SQL in it.
    """

    describes: ClassVar[type]

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = attributes

    @classmethod
    def model(cls) -> type[BaseModel]:
        described_by = cls.document_schema  # called only by what shows it: it takes longer than all else of a load

        class Attributes(RootModel[dict[str, Any]]):
            @classmethod
            def model_json_schema(cls, *_: object, **__: object) -> dict[str, Any]:
                return described_by()

        return Attributes

    @classmethod
    def document_schema(cls) -> dict[str, Any]:
        """The JSON Schema of the attributes."""
        return json_schema(cls.describes)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        return cls(model.model_dump())

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()


class KafkaCluster(_DocumentComponent):
    """A Kafka cluster: its brokers, and the client properties to connect to them. Streams name it."""

    describes = Cluster


class SchemaRegistry(_DocumentComponent):
    """A schema registry with Confluent's API: address, credentials, certificates, proxy. Streams name it."""

    describes = Registry


class TopicTable(_DocumentComponent):
    """One Kafka topic drained into one Delta table: an asset partitioned by date, and its checks."""

    describes = Stream

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        loaded = _loaded(context)
        stream = loaded.streams.get(str(self.attributes.get("table")))
        if stream is None:
            raise _not_described(loaded, context)
        return _stream_definitions(stream, loaded)


def _stream_definitions(stream: Stream, loaded: LoadedFolder) -> dg.Definitions:
    # The streams of a route group need each other.
    group = [s for s in loaded.streams.values() if stream.route_group and s.route_group == stream.route_group]
    return stream_definitions(stream, group=group)


class TopicTables(_DocumentComponent):
    """Many Kafka topics, each drained into a Delta table of its own: for each the assets of a TopicTable."""

    describes = TopicTablesSpec

    @classmethod
    def document_schema(cls) -> dict[str, Any]:
        return topic_tables_schema()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        loaded = _loaded(context)
        name = str(self.attributes.get("name"))
        if name not in loaded.topic_tables:
            raise _not_described(loaded, context)
        return dg.Definitions.merge(*(_stream_definitions(stream, loaded) for stream in loaded.streams_of(name)))


class KinesisConnection(_DocumentComponent):
    """Kinesis in one region. Streams name it."""

    describes = KinesisRegion


class KinesisTable(TopicTable):
    """One stream of Kinesis drained into one Delta table: an asset partitioned by date, and its checks."""

    describes = KinesisStream


class RefinedTable(_DocumentComponent):
    """A table made of the rows of other tables, kept up to date by what is new in them: an asset and its checks."""

    describes = RefinedTableSpec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        loaded = _loaded(context)
        table = loaded.refined.get(str(self.attributes.get("table")))
        if table is None:
            raise _not_described(loaded, context)
        return refined_definitions(table, loaded)


def _loaded(context: dg.ComponentLoadContext) -> LoadedFolder:
    return cached_streams(context.component_tree.defs_module_path, Settings.from_environment().kafka)


def _not_described(loaded: LoadedFolder, context: dg.ComponentLoadContext) -> Mistakes:
    """All mistakes of the folder; without one, the document changed after the folder was read."""
    message, right = "no document of the folder describes this table", "reload the code location"
    changed = DocumentMistake(file=display_path(context.path), line=1, field="table", message=message, right=right)
    return Mistakes(mistakes=sorted_mistakes(loaded.mistakes) or (changed,))


class ServedTable(_DocumentComponent):
    """A table in a database that follows a Delta table: an asset without partitions."""

    describes = ServedTableSpec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        loaded = _loaded(context)
        served = loaded.served.get(written_name(self.attributes))
        if served is None:
            raise Mistakes(mistakes=sorted_mistakes(loaded.mistakes))
        return dg.Definitions(assets=[served_asset(served)])
