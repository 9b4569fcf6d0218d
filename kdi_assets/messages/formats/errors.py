"""Errors of formats and registries."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.errors import KdiError, Terminal, Transient

UNTOUCHED = "nothing was committed; positions stay as they are, and schemas that were ever fetched stay known."


@dataclass
class FormatMistake(Exception):
    """The stream's document asks for something that the format does not have; ``field`` is the document's."""

    field: str
    message: str


class TooManySchemas(Terminal):
    """The messages of one plan name or bring more schemas than a topic can have."""

    stream: str
    said: str

    what_happened = "{stream}: messages of one plan {said}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "kdi peek {stream}; then kdi check   (first correct `format:` in the stream's document, or make plans "
        "smaller by `max_records`)"
    )


class _NoAnswer(KdiError):
    registry: str
    url: str
    detail: str

    what_is_safe = UNTOUCHED


class RegistryUnavailable(_NoAnswer, Transient):
    """The registry does not answer or does not yet, and the schema was never fetched, or its tags decide on masks."""

    asked: str

    what_happened = "registry {registry}: no answer from {url} to {asked} ({detail})."
    what_to_run = "kdi doctor; then the same command again   (is it up, are its address and the proxy right?)"


class RegistryAccessRefused(_NoAnswer, Terminal):
    """The registry or a proxy refuses access, or its certificate is not valid."""

    refused: str

    what_happened = "registry {registry}: {url} refuses {refused} ({detail})."
    what_to_run = (
        "kdi doctor   (first correct url, username, password, tls or proxy of the registry's document, the "
        "environment variables that it names, or the rights or certificate on the server)"
    )


class RegistrySettingRefused(Terminal):
    """A setting of the registry's document does not work on this machine."""

    registry: str
    setting: str
    detail: str

    what_happened = "registry {registry}: {setting} cannot be used: {detail}."
    what_is_safe = "the registry was not asked; no topic and no table was touched."
    what_to_run = "kdi doctor   (first correct {setting} of the registry's document, or the file that it names)"


class RegistryNotUnderstood(_NoAnswer, Terminal):
    """The server at the address is not a registry; its answer must not be read as "there is no such id"."""

    asked: str

    what_happened = "registry {registry}: {url} does not answer {asked} as a registry does ({detail})."
    what_to_run = (
        "kdi doctor   (first correct url of the registry's document (it ends before /subjects and /schemas), or "
        "the server in between)"
    )


class SubjectVersionUnknown(Terminal):
    """The registry has no such subject or version.

    Attributes:
        knows_subject: Whether it has other versions.
    """

    registry: str
    subject: str
    version: str
    knows_subject: bool
    detail: str

    what_happened = "registry {registry}: there is no version {version} of the subject {subject} ({detail})."
    what_is_safe = UNTOUCHED
    what_to_run = "kdi check   (first correct subject and version in the stream's document, or register the schema)"
