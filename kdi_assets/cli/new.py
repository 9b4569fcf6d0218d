"""`kdi new`: a document for a topic, proposed from a sample of its messages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.given import Defs
from kdi_assets.cli.output import json_line, progress, refusal_in_json
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_core import PydanticCustomError

    from kdi_assets.components.reading import Loaded
    from kdi_assets.message_format import SchemaRegistry
    from kdi_assets.proposal.payload import Framed
    from kdi_assets.proposal.propose import Proposal
    from kdi_assets.proposal.registered import Registered
    from kdi_assets.stream import KafkaCluster


def new(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The Kafka topic.")],
    cluster: Annotated[
        str | None, typer.Option(help="Name of its KafkaCluster document; default: main, or the only one.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option(help="Name of the SchemaRegistry document to ask; default: main, or the only one.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table's path; default: bronze/TOPIC.")] = None,
    messages: Annotated[int, typer.Option(min=1, max=20_000, help="Messages to sample, at most.")] = 2000,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the document and write nothing.")] = False,
    defs: Defs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Sample a topic and write a document for it: format, schema, date, each with what was seen.

    The oldest and the newest messages of each topic partition are read, without
    a consumer group. The document goes to a folder of its own in the folder of
    the documents, never over another. No value of a message is written into it.

    Exit codes: 0 written, or printed; 1 someone must decide; 2 usage; 75 a retry helps.
    """
    from kdi_assets.components.load import defs_folder, read_streams
    from kdi_assets.proposal.document import document
    from kdi_assets.proposal.place import place, refuse_clash, write
    from kdi_assets.proposal.propose import propose
    from kdi_assets.proposal.whence import sampled

    table = _right_names(topic, table)
    with refusal_in_json(table, as_json=as_json):
        folder, now = defs or defs_folder(), datetime.now(UTC)
        loaded = read_streams(folder)  # with mistakes in some document, another can be proposed all the same
        meant = _cluster(cluster, loaded, topic)
        file = None if stdout else place(folder, table, topic=topic)
        ask = _asking(_registry(registry, loaded), topic)
        progress(f"sampling {topic} of cluster {meant.name}")
        proposal = propose(sampled(meant, topic, count=messages), now=now, ask=ask)
        text = document(proposal, table=table, cluster=meant.name, now=now)
        if file:
            refuse_clash(folder, file, text, topic=topic)
            write(file, text, topic=topic)
    if as_json:
        json_line(_fields(proposal, table, meant.name, file, text))
    elif file:
        typer.echo(_written(proposal, table, file))
    else:
        typer.echo(text, nl=False)


def _right_names(topic: str, table: str | None) -> str:
    """The table's path.

    Raises:
        typer.BadParameter: A name is none.
    """
    from pydantic_core import PydanticCustomError

    from kdi_assets.components import checks

    try:
        checks.topic(topic)
    except PydanticCustomError as wrong:
        raise typer.BadParameter(_said(wrong), param_hint="TOPIC") from wrong
    try:
        return checks.table(table or f"bronze/{re.sub(r'^[^A-Za-z0-9]+', '', topic) or 'topic'}")
    except PydanticCustomError as wrong:
        raise typer.BadParameter(_said(wrong), param_hint="--table") from wrong


def _said(wrong: PydanticCustomError) -> str:
    context = wrong.context or {}
    return f"{context['message']}; {context['right']}"


def _cluster(name: str | None, loaded: Loaded, topic: str) -> KafkaCluster:
    from kdi_assets.components.mistakes import did_you_mean
    from kdi_assets.proposal.whence import cluster_meant

    if name is not None and name not in loaded.clusters:
        message = f"no KafkaCluster document is named {name!r}; {did_you_mean(name, loaded.clusters)}"
        raise typer.BadParameter(message, param_hint="--cluster")
    return cluster_meant(name, loaded.clusters, topic=topic)


def _registry(name: str | None, loaded: Loaded) -> SchemaRegistry | None:
    from kdi_assets.components.mistakes import did_you_mean

    known = loaded.registries
    if name is not None and name not in known:
        message = f"no SchemaRegistry document is named {name!r}; {did_you_mean(name, known)}"
        raise typer.BadParameter(message, param_hint="--registry")
    if name is None:
        return known.get("main") or (next(iter(known.values())) if len(known) == 1 else None)
    return known[name]


def _asking(registry: SchemaRegistry | None, topic: str) -> Callable[[Framed], Registered] | None:
    """Asks the registry for what the frames of messages name."""
    from kdi_assets.proposal.registered import MOST_IDS, asked

    if registry is None:
        return None
    home = Settings.from_environment().home
    return lambda frames: asked(registry, [n for n, _ in frames.ids.most_common(MOST_IDS)], topic=topic, home=home)


def _written(proposal: Proposal, table: str, file: Path) -> str:
    from kdi_assets.components.folder import shown
    from kdi_assets.proposal.advice import what
    from kdi_assets.proposal.document import outcome_in_words

    sample = len(proposal.sample.messages)
    return "\n".join(
        [
            f"{shown(file)}: {what(proposal.recognised)}, landing as {proposal.recognised.format};"
            f" date: {proposal.date.sql}",
            f"Under it the {sample:,} sampled messages are {outcome_in_words(proposal)}; the document says more.",
            f"  Run:  kdi check, then kdi peek {table}",
        ]
    )


def _fields(proposal: Proposal, table: str, cluster: str, file: Path | None, text: str) -> dict[str, object]:
    """As programs read it."""
    from kdi_assets.components.folder import shown

    found = proposal.outcome
    return {
        "topic": proposal.sample.topic.topic,
        "cluster": cluster,
        "stream": table,
        "file": shown(file) if file else None,
        "looks": proposal.recognised.looks,
        "format": proposal.recognised.format,
        "compression": proposal.recognised.compression,
        "date": proposal.date.sql,
        "sampled": len(proposal.sample.messages),
        "rows": found.rows,
        "tombstones": found.tombstones,
        "dead_letters": [
            {"reason": reason, "field": field or None, "messages": count}
            for (reason, field), count in found.letters.most_common()
        ],
        "document": text,
        "error": None,
    }
