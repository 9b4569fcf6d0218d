"""Why a registry gives no answer that a drain can go on with."""

from __future__ import annotations

from kdi_assets.errors import KdiError, Terminal, Transient

UNTOUCHED = "nothing was committed; positions stay as they are, and schemas that were ever fetched stay known."


class _NoAnswer(KdiError):
    registry: str
    url: str
    detail: str

    what_is_safe = UNTOUCHED


class RegistryUnavailable(_NoAnswer, Transient):
    """The registry does not answer, or says that it cannot now; what is asked for was never fetched before."""

    asked: str

    what_happened = "registry {registry}: no answer from {url} to {asked} ({detail})."
    what_to_run = "kdi doctor    (is it up, are its address and the proxy right?), then repeat the command"


class RegistryAccessRefused(_NoAnswer, Terminal):
    """The registry, or the proxy before it, answers and does not let us in, or is not what its certificate says."""

    refused: str

    what_happened = "registry {registry}: {url} refuses {refused} ({detail})."
    what_to_run = (
        "correct url, username, password, tls or proxy of the registry's document, the environment variables that "
        "it names, or our rights or the certificate there; then kdi doctor"
    )


class RegistrySettingRefused(Terminal):
    """A setting of the registry's document cannot be used on this machine."""

    registry: str
    setting: str
    detail: str

    what_happened = "registry {registry}: {setting} cannot be used: {detail}."
    what_is_safe = "the registry was not asked; no topic and no table was touched."
    what_to_run = "correct {setting} of the registry's document, or the file that it names; then kdi doctor"


class RegistryNotUnderstood(_NoAnswer, Terminal):
    """Something answers at the address, and not as a registry would: it must not be taken for "there is no such id"."""

    asked: str

    what_happened = "registry {registry}: {url} does not answer {asked} as a registry does ({detail})."
    what_to_run = (
        "correct url of the registry's document (it ends before /subjects and /schemas), or what stands in "
        "between; then kdi doctor"
    )


class SubjectVersionUnknown(Terminal):
    """The registry has no such subject, or no such version of it.

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
    what_to_run = "correct subject and version in the stream's document, or register the schema; then kdi check"
