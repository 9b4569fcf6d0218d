"""Defaults of a folder: the file ``defaults.yaml`` has fields that all its documents of Kafka topics share.

Dagster has no defaults for the attributes of components: its ``post_processing`` changes assets after the components
have made them, which neither the command line nor a drain would see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.topic_tables import OF_ONE_TABLE, TopicTablesSpec

if TYPE_CHECKING:
    from kdi_assets.documents.loading.errors import DocumentMistake
    from kdi_assets.documents.loading.yaml_documents import YamlDocument

FILE = "defaults.yaml"
TAKES_DEFAULTS = ("kdi_assets.components.TopicTable", "kdi_assets.components.TopicTables")
_NOT_SHARED = (*OF_ONE_TABLE, *TopicTablesSpec.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class FolderDefaults:
    """The defaults that hold in a folder.

    Attributes:
        fields: By name, the value and the file that has it.
    """

    fields: Mapping[str, tuple[Any, YamlDocument]] = field(default_factory=dict)

    def below(self, document: YamlDocument) -> FolderDefaults:
        """Those of a folder inside, whose own file this is."""
        own = {str(n): (value, document) for n, value in _attributes(document).items() if n not in _NOT_SHARED}
        return FolderDefaults({**self.fields, **own})

    def applied_to(self, document: YamlDocument) -> YamlDocument:
        """The document with the fields that it does not have itself, if its type takes defaults."""
        own = _attributes(document)
        if document.type not in TAKES_DEFAULTS or not own:
            return document
        missing = {name: found for name, found in self.fields.items() if name not in own}
        return replace(
            document,
            attributes={**own, **{name: value for name, (value, _) in missing.items()}},
            inherited={name: of for name, (_, of) in missing.items()},
        )


def wrong_defaults(document: YamlDocument) -> Iterator[DocumentMistake]:
    """Fields that documents cannot share."""
    for name in _attributes(document):
        if name in _NOT_SHARED:
            yield document.mistake(
                str(name), "belongs to one document, and is no default of a folder", "remove the line"
            )


def _attributes(document: YamlDocument) -> dict[Any, Any]:
    return document.attributes if isinstance(document.attributes, dict) else {}
