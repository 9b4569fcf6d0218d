"""Pydantic's errors as mistakes of a document: which field, what is wrong, what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from kdi_assets.components.mistakes import DocumentMistake, did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from kdi_assets.components.documents import Document

AnyFields = TypeVar("AnyFields", bound=BaseModel)

TAKES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
}


def validated(model: type[AnyFields], document: Document) -> AnyFields | list[DocumentMistake]:
    """The fields of a document, or every mistake in them."""
    try:
        return model.model_validate({} if document.attributes is None else document.attributes)
    except ValidationError as error:
        return list(_mistakes(model, document, error))


def _mistakes(model: type[BaseModel], document: Document, error: ValidationError) -> Iterator[DocumentMistake]:
    for detail in error.errors(include_url=False):
        steps = [step for step in detail["loc"] if step != "[key]"]
        if detail["type"] == "wrong" and steps and (info := model.model_fields.get(str(steps[0]))):
            steps[0] = info.alias or steps[0]  # of a value that was left out, pydantic tells the name that we gave it
        message, right = _explain(model, detail, steps)
        yield document.mistake(".".join(map(str, steps)) or "attributes", message, right)


def _explain(model: type[BaseModel], detail: ErrorDetails, steps: list[int | str]) -> tuple[str, str]:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "wrong":
        return context["message"], context["right"]
    if kind == "missing":
        return "is missing", f"e.g. {steps[-1]}: {_example(model, steps)}"
    if kind == "extra_forbidden":
        return "no such field", did_you_mean(str(steps[-1]), _names(model, steps[:-1]))
    if given is None:
        return "is empty", f"give it a value, e.g. {_example(model, steps)}"
    if kind == "string_type" and not isinstance(given, dict | list):
        return f"takes text, and {given!r} is {_named(given)}", "put it in quotes"
    if kind == "greater_than_equal":
        return f"{given!r} is too small", f"at least {context['ge']}"
    if kind in TAKES:
        return f"takes {TAKES[kind]}, not {given!r}", f"e.g. {_example(model, steps)}"
    return f"{detail['msg']} ({given!r} given)", f"e.g. {_example(model, steps)}"


def _named(value: object) -> str:
    return "a truth value in YAML" if isinstance(value, bool) else "a number in YAML"


def _fields_at(model: type[BaseModel], steps: list[int | str]) -> type[BaseModel] | None:
    """The model of the mapping at a path, if it is one of ours."""
    keyed = False
    for step in steps:
        if keyed:  # the name of one of several such mappings
            keyed = False
            continue
        annotation = next((i.annotation for n, i in model.model_fields.items() if (i.alias or n) == step), None)
        keyed = get_origin(annotation) is dict
        inner = next((a for a in (annotation, *get_args(annotation)) if _is_model(a)), None)
        if inner is None:
            return None
        model = inner
    return model


def _is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _names(model: type[BaseModel], steps: list[int | str]) -> list[str]:
    fields = _fields_at(model, steps)
    return [info.alias or name for name, info in fields.model_fields.items()] if fields else []


def _example(model: type[BaseModel], steps: list[int | str]) -> str:
    """An example of the innermost documented field on the path."""
    for length in range(len(steps), 0, -1):
        fields = _fields_at(model, steps[: length - 1])
        for name, info in fields.model_fields.items() if fields else ():
            if (info.alias or name) == steps[length - 1] and info.examples:
                return _as_yaml(info.examples[0])
    return "what the documentation shows"


def _as_yaml(value: object) -> str:
    if not isinstance(value, dict | list):
        return str(value)
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()
