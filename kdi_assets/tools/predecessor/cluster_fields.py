"""Client properties of a command line as the fields ``tls`` and ``sasl`` of a KafkaCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kdi_assets.documents.model.connections.connections import DECIDED_BY_FIELDS, Cluster
from kdi_assets.documents.model.connections.sasl import EVENT_HUBS_USER

PropertyValue = str | dict[str, str]
"""A property as documents write it: text, or ``{env: NAME}``."""

FIELDS: Mapping[str, str] = {
    **{f"ssl.{name}.{form}": f"tls.{name}" for name in ("ca", "certificate", "key") for form in ("location", "pem")},
    "ssl.key.password": "tls.key_password",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.username",
    "sasl.password": "sasl.password",
    "sasl.oauthbearer.token.endpoint.url": "sasl.token_endpoint",
    "sasl.oauthbearer.client.id": "sasl.client_id",
    "sasl.oauthbearer.client.secret": "sasl.client_secret",
    "sasl.oauthbearer.scope": "sasl.scope",
    "https.ca.location": "sasl.token_endpoint_ca",
    "https.ca.pem": "sasl.token_endpoint_ca",
}
"""A client property to the field that says the same."""
IMPLIED = {"sasl.oauthbearer.method": "oidc"}
"""Properties that a field says already if they have this value."""


def cluster_fields(servers: str, properties: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """The attributes of a cluster's document, besides its name: the fields, and the properties that they do not have.

    All of the connection stays with the properties if the fields cannot say all of it.
    """
    plainly = {"bootstrap_servers": servers, **({"properties": dict(properties)} if properties else {})}
    decided = {name: value for name, value in properties.items() if DECIDED_BY_FIELDS.fullmatch(name)}
    protocol = str(decided.pop("security.protocol", "PLAINTEXT")).upper()
    fields: dict[str, dict[str, PropertyValue]] = {"tls": {}, "sasl": {}}
    for name, value in decided.items():
        if name in FIELDS:
            group, _, key = FIELDS[name].partition(".")
            fields[group][key] = value
        elif IMPLIED.get(name) != value:
            return plainly
    tls, sasl = fields["tls"], fields["sasl"]
    if protocol not in ("SSL", "SASL_SSL", "SASL_PLAINTEXT") or bool(sasl) != protocol.startswith("SASL"):
        return plainly
    if sasl.get("username") == EVENT_HUBS_USER and "password" in sasl:
        sasl = {"mechanism": sasl["mechanism"], "connection_string": sasl["password"]} if "mechanism" in sasl else sasl
    others = {name: value for name, value in properties.items() if not DECIDED_BY_FIELDS.fullmatch(name)}
    attributes: dict[str, Any] = {"bootstrap_servers": servers}
    attributes |= _tls(tls, protocol) | ({"sasl": sasl} if sasl else {})
    attributes |= {"properties": others} if others else {}
    return attributes if tls.keys() <= _usable(protocol) and _valid(attributes) else plainly


def _tls(tls: Mapping[str, PropertyValue], protocol: str) -> dict[str, Any]:
    if protocol == "SASL_PLAINTEXT":
        return {"tls": False}
    if tls:
        return {"tls": dict(tls)}
    return {"tls": True} if protocol == "SSL" else {}


def _usable(protocol: str) -> set[str]:
    """What goes with the protocol: certificates for a connection without TLS are a mistake, which stays visible."""
    return {"ca", "certificate", "key", "key_password"} if protocol.endswith("SSL") else set()


def _valid(attributes: Mapping[str, Any]) -> bool:
    try:
        TypeAdapter(Cluster).validate_python({"name": "main", **attributes})
    except ValidationError:
        return False
    return True
