"""The components: Dagster's face of the documents, which ``config.loader`` reads for it and the command line."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import dagster as dg
from pydantic import BaseModel, RootModel

from kdi_assets.components.table_asset import stream_definitions
from kdi_assets.config.errors import DocumentMistake, Mistakes
from kdi_assets.config.folder import display_path
from kdi_assets.config.loader import cached_streams
from kdi_assets.config.validation import json_schema
from kdi_assets.config.yaml_documents import sorted_mistakes
from kdi_assets.settings import Settings
from kdi_assets.stream.connections import Cluster, Registry
from kdi_assets.stream.stream import Stream


class _Documented(dg.Component, dg.Resolvable):
    """A component of which Dagster knows the fields, and takes what is written as it is.

    Dagster would render every string as a template, and lose quotes, comments and types of SQL in it.
    """

    describes: ClassVar[type]

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = attributes

    @classmethod
    def model(cls) -> type[BaseModel]:
        return _model(cls.describes)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        return cls(model.model_dump())

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()


def _model(describes: type) -> type[BaseModel]:
    class Attributes(RootModel[dict[str, Any]]):
        @classmethod
        def model_json_schema(cls, *_: object, **__: object) -> dict[str, Any]:
            return json_schema(describes)

    return Attributes


class KafkaCluster(_Documented):
    """A Kafka cluster: its brokers, and the client properties to speak to them. Streams name it."""

    describes = Cluster


class SchemaRegistry(_Documented):
    """A schema registry with Confluent's API: its address, credentials, certificates and proxy. Streams name it."""

    describes = Registry


class TopicTable(_Documented):
    """One Kafka topic drained into one Delta table: an asset partitioned by date, and its checks."""

    describes = Stream

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        loaded = cached_streams(context.component_tree.defs_module_path, Settings.from_environment().kafka)
        stream = loaded.streams.get(str(self.attributes.get("table")))
        if stream is None:
            said = "no document of the folder describes such a table"
            unread = DocumentMistake(
                file=display_path(context.path), line=1, field="table", message=said, right="load it anew"
            )
            raise Mistakes(mistakes=sorted_mistakes(loaded.mistakes) or (unread,))
        # Of a stream that shares its topic by a route, all documents together say what it takes.
        group = [s for s in loaded.streams.values() if stream.route_group and s.route_group == stream.route_group]
        return stream_definitions(stream, group=group)
