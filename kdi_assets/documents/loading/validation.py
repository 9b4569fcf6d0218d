"""Validate a document with pydantic; turn pydantic's errors into mistakes with line, field and correction."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from inspect import getsource
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.documents.model.connections.connections import Cluster, Registry
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.field_types import SAID_ELSEWHERE
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.variables import MARK, TEMPLATE
from kdi_assets.wording import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, core_schema

    from kdi_assets.documents.loading.yaml_documents import YamlDocument

Model = TypeVar("Model")
Named = TypeVar("Named", Cluster, KinesisRegion, Registry, ServedTableSpec)

EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
    "tuple_type": "a list",
}


def validate_document(
    model: type[Model], document: YamlDocument, *, references: object = None
) -> Model | list[DocumentMistake]:
    """The model that a document describes, or every mistake in it; no mistake if only a referenced document is wrong.

    Args:
        references: pydantic's validation context.
    """
    attributes = {} if document.attributes is None else document.attributes
    misplaced = list(_misplaced_variables(model, document))
    try:
        valid: Model = _adapter(model).validate_python(attributes, context=references)  # type: ignore[arg-type]  # a type is hashable
        return misplaced or valid
    except ValidationError as error:
        fields = {mistake.field for mistake in misplaced}
        return misplaced + [mistake for mistake in _mistakes(model, document, error) if mistake.field not in fields]


def read_by_name(
    model: type[Named],
    documents: Sequence[YamlDocument],
    mistakes: list[DocumentMistake],
    *,
    field: str = "name",
    said: str = "{name!r} is described at {place} already",
    right: str = "rename or remove one of the two",
) -> dict[str, Named]:
    """What documents describe, by name; what is wrong is added to the mistakes.

    Args:
        field: Where a document has the name.
        said: The mistake of a second document with a name, with ``{name}``, and ``{place}`` of the first.
        right: What to write instead.
    """
    found: dict[str, Named] = {}
    places: dict[str, str] = {}
    for document in documents:
        one = validate_document(model, document)
        if isinstance(one, list):
            mistakes += one
        elif (name := one.name) in found:
            mistakes.append(document.mistake(field, said.format(name=name, place=places[name]), right))
        else:
            found[name], places[name] = one, document.place(field)
    return found


@lru_cache
def json_schema(model: type) -> dict[str, Any]:
    """The JSON Schema of the model's documents, with descriptions and examples."""
    return _adapter(model).json_schema(schema_generator=_DocumentSchema)


@lru_cache
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)


class _DocumentSchema(GenerateJsonSchema):
    """Takes descriptions from the docstrings below fields.

    Omits defaults that are our dataclasses: pydantic would show the engine's field names, not the document's.
    """

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        made = super().dataclass_schema(schema)
        classes = reversed(schema["cls"].__mro__[:-1])  # a subclass may describe a field anew
        docs = {name: text for of in classes for name, text in _field_docs(of).items()}
        arguments: Any = schema["schema"]
        while "fields" not in arguments:  # inside of its validators
            arguments = arguments["schema"]
        for field in arguments["fields"]:
            written = made["properties"].get(field.get("validation_alias", field["name"]))
            if written is not None:
                written["description"] = docs[field["name"]]
        return made

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value  # examples keep their order

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if is_dataclass(schema.get("default")):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


def _field_docs(of: type) -> dict[str, str]:
    """The docstrings below the fields of a class, each as one line. Python keeps them in the source only."""
    (body,) = (node.body for node in ast.parse(getsource(of)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _mistakes(model: type, document: YamlDocument, error: ValidationError) -> Iterator[DocumentMistake]:
    for detail in error.errors(include_url=False):
        context = detail.get("ctx", {})
        steps = [str(step) for step in detail["loc"] if step != "[key]"]
        if detail["type"] == SAID_ELSEWHERE:
            continue
        message, right = _explain(json_schema(model), detail, steps)
        yield document.mistake(context.get("field") or ".".join(steps) or "attributes", message, right)


def _misplaced_variables(model: type, document: YamlDocument) -> Iterator[DocumentMistake]:
    """Fields with nothing but ``{{ env… }}`` that do not take it. Inside of longer text it may be part of Spark SQL.

    What the model does not describe is described elsewhere: fields of exceptions belong to the streams of their topics.
    """
    for path, text in _texts(document.attributes, ()):
        if not TEMPLATE.fullmatch(text.strip()):
            continue  # before the schema is made, which takes as long as all documents of a folder
        if (field := _schema_at(json_schema(model), list(path))) and not field.get(MARK):
            right = "write the value; the page environments.md names the fields that may differ by environment"
            yield document.mistake(".".join(path), f"takes no variable, and {text!r} names one", right)


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text below a value, with its path."""
    if isinstance(value, str):
        yield path, value
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _texts(below, (*path, str(key)))


def _explain(schema: dict[str, Any], detail: ErrorDetails, steps: list[str]) -> tuple[str, str]:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "wrong":
        return context["message"], context["right"]
    if kind == "missing":
        return "is missing", f"e.g. {steps[-1]}: {_example(schema, steps)}"
    if kind == "unexpected_keyword_argument":
        return "no such field", did_you_mean(steps[-1], _fields(schema, _schema_at(schema, steps[:-1])))
    if given is None:
        return "is empty", f"give it a value, e.g. {_example(schema, steps)}"
    if kind == "string_type" and not isinstance(given, dict | list):
        yaml_type = "a truth value" if isinstance(given, bool) else "a number"
        return f"takes text, and {given!r} is {yaml_type} in YAML", "put it in quotes"
    if kind == "greater_than_equal":
        return f"{given!r} is too small", f"at least {context['ge']}"
    if expected := context["expected"].replace("'", "") if kind == "literal_error" else EXPECTED.get(kind):
        return f"takes {expected}, not {given!r}", f"e.g. {_example(schema, steps)}"
    return f"{detail['msg']} ({given!r} given)", f"e.g. {_example(schema, steps)}"


def _schema_at(schema: dict[str, Any], steps: list[str]) -> dict[str, Any]:
    """The part of the schema for a path; empty if the schema does not have the path."""
    at = schema
    for step in steps:
        properties = _fields(schema, at)
        at = properties.get(step) or next(
            (more for v in _variants(schema, at) if isinstance(more := v.get("additionalProperties"), dict)), {}
        )
    return at


def _fields(schema: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    return next((v["properties"] for v in _variants(schema, at) if "properties" in v), {})


def _variants(schema: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield at
    if "$ref" in at:
        yield from _variants(schema, schema["$defs"][at["$ref"].rpartition("/")[2]])
    for variant in at.get("anyOf", ()):
        yield from _variants(schema, variant)


def _example(schema: dict[str, Any], steps: list[str]) -> str:
    """An example of the innermost documented field on the path."""
    for length in range(len(steps), 0, -1):
        if examples := _schema_at(schema, steps[:length]).get("examples"):
            return _as_yaml(examples[0])
    return "what the documentation shows"


def _as_yaml(value: object) -> str:
    if not isinstance(value, dict | list):
        return str(value)
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()
