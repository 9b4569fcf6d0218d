"""Proposals of many topics as one document: what most of them have is shared, the rest are exceptions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from kdi_assets.documents.loading.loader import TOPIC_TABLES
from kdi_assets.documents.model.limits import DateWindow
from kdi_assets.tools.scaffold.document import CLOCK, document, outcome_in_words
from kdi_assets.tools.scaffold.propose import Proposal
from kdi_assets.wording import counted

_OF_ONE_TOPIC = ("topic", "table", "cluster", "date_window")
PLACE = "{topic}"


def many_topics_document(
    proposals: Mapping[str, Proposal],
    skipped: Mapping[str, str],
    *,
    name: str,
    table: str,
    cluster: str,
    now: datetime,
) -> str:
    """The text of the document; of several, if topics have different sets of fields.

    An exception can replace a shared field, but cannot take it away: text has no schema, for example.

    Args:
        proposals: By topic; at least one.
        skipped: Topics that are not in the document, with the reason.
        name: Of the first document; the others have a number.
        table: The path of each table, with ``{topic}``.
    """
    groups: dict[frozenset[str], dict[str, dict[str, Any]]] = {}
    for topic, proposal in proposals.items():
        fields = _fields(proposal, cluster, now)
        groups.setdefault(frozenset(fields), {})[topic] = fields
    documents = []
    for number, group in enumerate(sorted(groups.values(), key=len, reverse=True), start=1):
        names = {"name": name if number == 1 else f"{name}_{number}", "topics": list(group), "table": table}
        window = _window([proposals[topic].window for topic in group])
        attributes = {**names, "cluster": cluster, **_fields_of_group(group), "date_window": window}
        written = {"type": TOPIC_TABLES, "attributes": attributes}
        documents.append(yaml.dump(written, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**20))
    head = "".join(f"# {line}".rstrip() + "\n" for line in _head(proposals, skipped, now))
    return head + "---\n".join(documents)


def _head(proposals: Mapping[str, Proposal], skipped: Mapping[str, str], now: datetime) -> Iterator[str]:
    yield f"Proposed by `kdi new --all` at {now.astimezone(UTC):{CLOCK}}; nothing was drained."
    yield ""
    for topic, proposal in proposals.items():
        sampled = counted(len(proposal.sample.messages), "message")
        yield f"{topic}: {proposal.recognised.what}; of {sampled}: {outcome_in_words(proposal)}"
        if proposal.changes and proposal.changes.keys:
            yield f"  kdi new {topic} --stdout shows a refined table of these changes as well."
    for topic, why in skipped.items():
        yield f"Left out: {topic}: {' '.join(why.split())}"
    yield "Next: kdi check; a pattern in place of the list takes in topics to come (docs/many-topics.md)"


def _fields(proposal: Proposal, cluster: str, now: datetime) -> dict[str, Any]:
    """The fields that a document of the topic alone would have, without those of its names."""
    text = document(proposal, table="x", cluster=cluster, now=now)
    attributes = next(yaml.safe_load_all(text))["attributes"]
    return {name: _plain(value) for name, value in attributes.items() if name not in _OF_ONE_TOPIC}


def _plain(value: Any) -> Any:
    """A schema without the statistics of one topic's sample, which would make equal schemas differ."""
    if isinstance(value, str) and "\n" in value:
        return "\n".join(re.sub(r"\s+--.*$", "", line) for line in value.splitlines())
    return value


def _fields_of_group(group: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The fields that topics share, and their exceptions; all have the same fields."""
    shared = {field: _most_frequent([own[field] for own in group.values()]) for field in next(iter(group.values()))}
    differing = {t: {n: v for n, v in own.items() if shared[n] != v} for t, own in group.items()}
    exceptions = {topic: own for topic, own in differing.items() if own}
    return {**shared, **({"exceptions": exceptions} if exceptions else {})}


def _most_frequent(values: Sequence[Any]) -> Any:
    texts = [yaml.safe_dump(value) for value in values]  # values may be mappings, which cannot be counted
    return values[texts.index(Counter(texts).most_common(1)[0][0])]


def _window(windows: Sequence[DateWindow]) -> dict[str, Any]:
    """The smallest window that holds all others."""
    ahead = max(window.ahead_days for window in windows)
    return {"start": min(window.first for window in windows).isoformat(), "ahead": f"{ahead} days"}


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
