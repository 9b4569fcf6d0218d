"""`kdi new`: a document for a topic, proposed from a sample of its messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import answer, progress, refusal_in_json
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.scaffold.propose import Proposal

Described = TypeVar("Described")


def new(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The Kafka topic.")],
    cluster: Annotated[
        str | None, typer.Option(help="Name of its KafkaCluster document; default: main, or the only one.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option(help="Name of the SchemaRegistry document to ask; default: main, or the only one.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table's path; default: bronze/TOPIC.")] = None,
    messages: Annotated[int, typer.Option(min=1, max=20_000, help="Messages to sample, in all.")] = 2000,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the document and write nothing.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Sample a topic and write a document for it: format, schema, date, each with what was seen.

    The oldest and the newest messages of each topic partition are read, without
    a consumer group. The document goes to a folder of its own in the folder of
    the documents, never over another. No value of a message is written into it.

    Exit codes: 0 written, or printed; 1 someone must decide; 2 usage; 75 a retry helps.
    """
    from kdi_assets.config.loader import defs_folder, read_streams
    from kdi_assets.scaffold.document import document
    from kdi_assets.scaffold.propose import propose
    from kdi_assets.scaffold.registry_lookup import subject_of
    from kdi_assets.scaffold.sample_and_folder import place, sampled, write

    table = table or f"bronze/{re.sub(r'^[^A-Za-z0-9]+', '', topic) or 'topic'}"
    with refusal_in_json(table, as_json=as_json):
        folder, now = defs or defs_folder(), datetime.now(UTC)
        loaded = read_streams(folder)  # with mistakes in some document, another can be proposed all the same
        of_topic = _meant(cluster, loaded.clusters, "cluster")
        of_schemas = _meant(registry, loaded.registries, "registry")
        if of_topic is None:
            known = ", ".join(sorted(loaded.clusters)) or "no document describes one; KDI_KAFKA=host:9092 does"
            raise typer.BadParameter(f"which cluster? {known}", param_hint="--cluster")
        file = None if stdout else place(folder, table, topic=topic)
        progress(f"sampling {topic} of cluster {of_topic.name}")
        home = Settings.from_environment().home
        ask = partial(subject_of, topic, of_schemas, home) if of_schemas else None
        proposal = propose(sampled(of_topic, topic, count=messages), now=now, ask=ask)
        text = document(proposal, table=table, cluster=of_topic.name, now=now)
        if file:
            write(folder, file, text, topic=topic)
    said = _written(proposal, table, file) if file else text.removesuffix("\n")
    answer(said, _fields(proposal, table, of_topic.name, file, text), as_json=as_json)


def _meant(name: str | None, known: Mapping[str, Described], option: str) -> Described | None:
    """What has this name; with no name ``main``, or the only one."""
    from kdi_assets.wording import did_you_mean

    if name is None:
        return known.get("main") or (next(iter(known.values())) if len(known) == 1 else None)
    if name not in known:
        message = f"no document describes a {option} named {name!r}; {did_you_mean(name, known)}"
        raise typer.BadParameter(message, param_hint=f"--{option}")
    return known[name]


def _written(proposal: Proposal, table: str, file: Path) -> str:
    from kdi_assets.config.folder import display_path
    from kdi_assets.scaffold.document import outcome_in_words

    found, sample = proposal.recognised, len(proposal.sample.messages)
    return (
        f"{display_path(file)}: {found.what}, landing as {found.format}; date: {proposal.date.sql}\n"
        f"Under it the {sample:,} sampled messages are {outcome_in_words(proposal)}; the document says more.\n"
        f"  Run:  kdi check, then kdi peek {table}"
    )


def _fields(proposal: Proposal, table: str, cluster: str, file: Path | None, text: str) -> dict[str, object]:
    """As programs read it."""
    from kdi_assets.config.folder import display_path

    found = proposal.outcome
    return {
        "topic": proposal.sample.topic.topic,
        "cluster": cluster,
        "stream": table,
        "file": display_path(file) if file else None,
        "recognised": proposal.recognised.what,
        "format": proposal.recognised.format,
        "date": proposal.date.sql,
        "sampled": len(proposal.sample.messages),
        "rows": found.rows,
        "tombstones": found.tombstones,
        "dead_letters": [
            {"reason": reason, "field": field or None, "messages": count}
            for (reason, field), count in found.letters.most_common()
        ],
        "document": text,
    }
