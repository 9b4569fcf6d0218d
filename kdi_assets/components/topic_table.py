"""The component of a stream: Dagster's face of ``TopicTableFields``."""

from __future__ import annotations

from typing import Self

import dagster as dg
from pydantic import BaseModel

from kdi_assets.components.assets import stream_definitions
from kdi_assets.components.documents import Document
from kdi_assets.components.fields import TopicTableFields
from kdi_assets.components.folder import shown
from kdi_assets.components.reading import read_once, unknown_cluster, unknown_registry
from kdi_assets.components.schema_file_mistake import SchemaFileMistake
from kdi_assets.settings import Settings


class TopicTable(dg.Component, dg.Resolvable, TopicTableFields):
    """One Kafka topic drained into one Delta table: an asset partitioned by date, and its checks."""

    @classmethod
    def model(cls) -> type[BaseModel]:
        return TopicTableFields

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        # As written: Dagster would render every string as a template, and lose quotes, comments and types of SQL in it.
        return cls.model_construct(**dict(model))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        loaded = read_once(context.component_tree.defs_module_path, Settings.from_environment().kafka)
        document = Document(shown(context.path), 1, "", None, {})
        if self.cluster not in loaded.clusters:
            raise unknown_cluster(self.cluster, document, loaded.clusters)
        if self.registry and self.registry not in loaded.registries:
            raise unknown_registry(self, document, loaded.registries)
        folder = context.path if context.path.is_dir() else context.path.parent
        cluster, registry = loaded.clusters[self.cluster], loaded.registries.get(self.registry)
        try:
            stream = self.stream(cluster, registry, folder=folder)
        except SchemaFileMistake as unread:
            raise document.mistake(unread.field, unread.message, unread.right) from unread
        # Of a stream that shares its topic by a route, all documents together say what it takes.
        group = [s for s in loaded.streams.values() if stream.route_group and s.route_group == stream.route_group]
        return stream_definitions(next((s for s in group if s.name == stream.name), stream), group=group)
