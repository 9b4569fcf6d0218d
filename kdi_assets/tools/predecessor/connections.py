"""The Kafka cluster and the schema registry of a command line, as documents. A secret is never copied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import TypeAdapter

from kdi_assets.documents.loading.loader import KAFKA_CLUSTER, SCHEMA_REGISTRY
from kdi_assets.documents.model.connections.client_values import EnvironmentProperties
from kdi_assets.documents.model.connections.connections import OWNED_CLIENT_PROPERTIES, Cluster, Registry
from kdi_assets.documents.model.connections.sasl import EVENT_HUBS_USER
from kdi_assets.tools.predecessor.cluster_fields import FIELDS, IMPLIED, PropertyValue, cluster_fields
from kdi_assets.tools.predecessor.command import REFERENCE, Given, IngestCommand
from kdi_assets.tools.predecessor.option_notes import OptionNote, note, undecided

_SECRET = re.compile(r"password|secret|jaas|\.pem$|token(?!\.endpoint)|oauthbearer\.config")
_OF_GROUPS = re.compile(
    r"group\..*|heartbeat\..*|session\.timeout\.ms|max\.poll\..*|partition\.assignment\.strategy|auto\.commit\..*|"
    r"offset\.store\..*|enable\.auto\.offset\.store|coordinator\..*|enable\.partition\.eof"
)
_OF_ITS_CLIENT = re.compile(
    r"queued\..*|fetch\..*|consume\..*|statistics\..*|debug|log[._].*|socket\.(blocking|nagle).*"
)
_PEM = {"CERT": "ssl.certificate.pem", "KEY": "ssl.key.pem", "CA": "ssl.ca.pem"}
SCRAM = "KAFKA_DELTA_INGEST_SCRAM_JSON"

TO_CLUSTER = "KafkaCluster: "


@dataclass
class ImportedConnection:
    """A cluster or registry, and what is to be said of it.

    Attributes:
        name: Its document's name.
        type: Of its document.
        attributes: Of a new document; empty if the folder has the document already.
        secrets: Environment variables that must be set: name to what they hold.
    """

    name: str
    type: str
    attributes: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    notes: list[OptionNote] = field(default_factory=list)


def cluster_of(command: IngestCommand, known: Mapping[str, Cluster]) -> ImportedConnection:
    """The cluster that a command line names.

    Args:
        known: The clusters that documents describe already, by name.
    """
    servers = ",".join(_host_and_port(server.strip()) for server in command.value("kafka").split(","))
    found = ImportedConnection("", KAFKA_CLUSTER)
    properties: dict[str, PropertyValue] = {}
    settings = command.options.get("kafka_setting", ())
    with_endpoint = any("sasl.oauthbearer.token.endpoint.url" in given.value for given in settings)
    for given in settings:
        _add_setting(given, properties, found, with_endpoint=with_endpoint)
    for name, property in _PEM.items():
        if f"KAFKA_DELTA_INGEST_{name}" in command.variables:
            _add_variable(f"KAFKA_DELTA_INGEST_{name}", property, command, properties, found)
    if SCRAM in command.variables:
        properties |= {"sasl.username": {"env": "KAFKA_USERNAME"}, "sasl.password": {"env": "KAFKA_PASSWORD"}}
        found.secrets |= {f"KAFKA_{key.upper()}": f"`{key}` in {SCRAM}" for key in ("username", "password")}
        here = "KafkaCluster: sasl.username and sasl.password, each from a variable of its own"
        found.notes.append(OptionNote(SCRAM, command.variables[SCRAM].where, here))
    attributes = cluster_fields(servers, properties)
    if "tls" in attributes or "sasl" in attributes:
        found.notes = [replace(n, here=_by_field(n.here)) for n in found.notes]
    found.name = next((c.name for c in known.values() if _same(c, attributes)), "") or _free_name(known, servers)
    if found.name not in known:
        found.attributes = {"name": found.name, **attributes}
    given_servers = command.given("kafka") or Given("--kafka", servers, "its default")
    found.notes.insert(0, note(given_servers, f"KafkaCluster {found.name}: bootstrap_servers"))
    return found


def registry_of(command: IngestCommand, given: Given, known: Mapping[str, Registry]) -> ImportedConnection:
    """The schema registry at the address of an option."""
    found, parts = ImportedConnection("", SCHEMA_REGISTRY), urlsplit(given.value)
    host = parts.netloc.rpartition("@")[2]
    url = urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/")
    attributes: dict[str, Any] = {"url": url}
    for key in ("username", "password", "proxy"):
        variable = f"SCHEMA_REGISTRY_{key.upper()}"
        in_url = {"username": parts.username, "password": parts.password}.get(key)
        if variable in command.variables or in_url:
            attributes[key] = {"env": variable}
            if variable in command.variables:
                found.notes.append(OptionNote(variable, command.variables[variable].where, f"SchemaRegistry: {key}"))
            found.secrets[variable] = f"the {key} of the registry"
    same = (r.name for r in known.values() if r.url == url and set(r.properties) == attributes.keys() - {"url"})
    found.name = next(same, "") or _free_name(known, host)
    if found.name not in known:
        found.attributes = {"name": found.name, **attributes}
    shown = url if parts.username is None else f"{unquote(parts.scheme)}://…@{host}"
    found.notes.insert(0, note(given, f"SchemaRegistry {found.name}, and `format`", shown=shown))
    return found


def _host_and_port(server: str) -> str:
    server = server.partition("://")[2] or server
    return server if re.search(r":\d+$", server) else f"{server}:9092"


def _add_setting(
    given: Given, properties: dict[str, PropertyValue], found: ImportedConnection, *, with_endpoint: bool
) -> None:
    """One ``-K property=value``."""
    property, equals, value = (part.strip() for part in given.value.partition("="))
    is_secret = bool(_SECRET.search(property))
    shown = f"{property}=…" if is_secret else None
    if not equals or not property:
        found.notes.append(undecided(given, "is not property=value", shown="…"))
        return
    if reason := _no_counterpart(property, value):
        found.notes.append(note(given, reason, shown=shown))
        return
    if value == "OAUTHBEARER" and not with_endpoint:
        why = "OAUTHBEARER needs a token endpoint here: sasl.oauthbearer.token.endpoint.url, client.id, client.secret"
        found.notes.append(undecided(given, why, shown=shown))
        return
    reference = None if value == EVENT_HUBS_USER else REFERENCE.fullmatch(value)
    if reference or is_secret:
        variable = (
            (reference[1] or reference[2]) if reference else f"KAFKA_{re.sub(r'[^A-Z0-9]+', '_', property.upper())}"
        )
        properties[property] = {"env": variable}
        found.secrets[variable] = f"the value of {given.option} {property} ({given.where})"
        found.notes.append(note(given, f"{TO_CLUSTER}{property}: {{env: {variable}}}", shown=shown))
    elif value != EVENT_HUBS_USER and REFERENCE.search(value):
        found.notes.append(
            undecided(given, "a variable is part of the value: write the value, or make all of it one variable")
        )
    else:
        properties[property] = value
        found.notes.append(note(given, f"{TO_CLUSTER}{property}"))


def _no_counterpart(property: str, value: str) -> str:
    """Why a client property is not taken over; empty if it is."""
    if property == "auto.offset.reset":
        latest = ": its own rule is --auto_offset_reset; releases before 2022 took this" if value != "earliest" else ""
        return f"none: `start` decides{latest}"
    if property in OWNED_CLIENT_PROPERTIES:
        return f"none: {OWNED_CLIENT_PROPERTIES[property]}"
    if _OF_GROUPS.fullmatch(property):
        return "none: no consumer group is joined"
    if _OF_ITS_CLIENT.fullmatch(property):
        return "none: a setting of its client; ours read exact ranges with their own settings"
    if property == "enable.ssl.certificate.verification" and value.lower() == "false":
        return "none: Spark's client always verifies; give the authority as ssl.ca.location"
    return ""


def _add_variable(
    variable: str,
    property: str,
    command: IngestCommand,
    properties: dict[str, PropertyValue],
    found: ImportedConnection,
) -> None:
    properties[property] = {"env": variable}
    found.secrets[variable] = "as before, PEM"
    found.notes.append(OptionNote(variable, command.variables[variable].where, f"{TO_CLUSTER}{property}"))


def _by_field(here: str) -> str:
    """A note of a property that became a field."""
    name, colon, rest = here.removeprefix(TO_CLUSTER).partition(":")
    fields = {**FIELDS, **dict.fromkeys(IMPLIED, "sasl.mechanism"), "security.protocol": "tls"}
    if not here.startswith(TO_CLUSTER) or name not in fields:
        return here
    return f"{TO_CLUSTER}{fields[name]}{colon}{rest}"


def _same(cluster: Cluster, attributes: Mapping[str, Any]) -> bool:
    """Whether a document's cluster is the one that the attributes describe."""
    other: Cluster = TypeAdapter(Cluster).validate_python({"name": cluster.name, **attributes})
    fields = (cluster.bootstrap_servers, cluster.tls, cluster.sasl, _written(cluster))
    return fields == (other.bootstrap_servers, other.tls, other.sasl, _written(other))


def _written(cluster: Cluster) -> dict[str, object]:
    """The properties of a cluster as its document writes them."""
    properties = cluster.properties
    return dict(properties.written if isinstance(properties, EnvironmentProperties) else properties)


def _free_name(known: Iterable[str], host: str) -> str:
    own = re.sub(r"[^A-Za-z0-9]+", "-", re.split(r"[.:,]", host)[0]).strip("-") or "other"
    names = ["main", own, *(f"{own}-{n}" for n in range(2, 1000))]
    return next(name for name in names if name not in set(known))
