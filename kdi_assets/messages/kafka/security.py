"""TLS and login of a cluster, for librdkafka and for Spark's Java client: the one place that knows both forms.

A document says them by the fields ``tls`` and ``sasl``, or by librdkafka's properties. The fields become properties,
and the properties become the Java client's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from kdi_assets.documents.model.connections.client_values import is_pem
from kdi_assets.documents.model.connections.sasl import AWS_MSK_IAM, EVENT_HUBS_USER, Sasl
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.kafka.errors import KeyNotPkcs8
from kdi_assets.messages.kafka.msk import signing_keys

_MODULES = "org.apache.kafka.common.security"
_LOGIN_MODULE = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
_TOKEN_MODULE = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
_TOKEN_HANDLER = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
_MSK_HANDLER = "kdi.kafka.MskLogin"

_PEM = {
    "ssl.certificate": ("ssl.keystore", "ssl.keystore.certificate.chain"),
    "ssl.key": ("ssl.keystore", "ssl.keystore.key"),
    "ssl.ca": ("ssl.truststore", "ssl.truststore.certificates"),
}
"""librdkafka's name of a certificate or key, to the Java client's store and property, which holds the text of it."""


def client_properties(cluster: Cluster) -> dict[str, str]:
    """The cluster's properties as librdkafka names them, with those of ``tls`` and ``sasl``; all but MSK's tokens.

    Raises:
        EnvironmentVariableMissing, SecretUnreadable, SecretUnanswered: A value cannot be had.
    """
    properties = dict(cluster.properties)
    if not cluster.connects_by_fields:
        return properties
    values = cluster.credentials
    protocol = f"{'SASL_' if cluster.sasl else ''}{'SSL' if cluster.uses_tls else 'PLAINTEXT'}"
    properties |= {"security.protocol": protocol, **_tls(values)}
    return properties | _sasl(cluster.sasl, values) if cluster.sasl else properties


def _tls(values: Mapping[str, str]) -> dict[str, str]:
    pems = {"ssl.ca": values.get("tls.ca"), "ssl.certificate": values.get("tls.certificate")}
    pems["ssl.key"] = values.get("tls.key", pems["ssl.certificate"])
    found = dict(_pem(name, value) for name, value in pems.items() if value)
    if password := values.get("tls.key_password"):
        found["ssl.key.password"] = password
    return found


def _pem(name: str, value: str) -> tuple[str, str]:
    return f"{name}.pem" if is_pem(value) else f"{name}.location", value


def _sasl(sasl: Sasl, values: Mapping[str, str]) -> dict[str, str]:
    if sasl.mechanism == AWS_MSK_IAM:
        return {"sasl.mechanisms": "OAUTHBEARER"}
    login: dict[str, str] = {"sasl.mechanisms": sasl.mechanism}
    if sasl.mechanism != "OAUTHBEARER":
        if sasl.connection_string:
            return login | {"sasl.username": EVENT_HUBS_USER, "sasl.password": values["sasl.connection_string"]}
        return login | {name: values[name] for name in ("sasl.username", "sasl.password")}
    token = {
        "method": "oidc",
        "token.endpoint.url": sasl.token_endpoint,
        "client.id": values["sasl.client_id"],
        "client.secret": values["sasl.client_secret"],
        "scope": sasl.scope,
        "extensions": ",".join(f"{name}={value}" for name, value in sasl.extensions.items()),
    }
    login |= {f"sasl.oauthbearer.{name}": value for name, value in token.items() if value}
    return login | dict([_pem("https.ca", ca)] if (ca := values.get("sasl.token_endpoint_ca")) else [])


def java_properties(cluster: Cluster) -> dict[str, str]:
    """The same for the Java client; certificates as texts, because executors do not see the driver's files.

    Raises:
        AwsCredentialsMissing: For MSK, AWS gives none.
        KeyNotPkcs8: The Java client cannot read the key.
    """
    properties = client_properties(cluster)
    mechanism = properties.pop("sasl.mechanisms", None) or properties.get("sasl.mechanism")
    user, password = properties.pop("sasl.username", None), properties.pop("sasl.password", None)
    token_options = _token_options(properties)
    properties |= _certificates(properties)
    _refuse_other_keys(cluster, properties.get("ssl.keystore.key", ""))
    if not mechanism:
        return properties
    properties["sasl.mechanism"] = mechanism
    if cluster.sasl and cluster.sasl.mechanism == AWS_MSK_IAM:
        return properties | _java_login(_TOKEN_MODULE, signing_keys(cluster).options, handler=_MSK_HANDLER)
    if mechanism in _LOGIN_MODULE and user is not None:
        return properties | _java_login(_LOGIN_MODULE[mechanism], {"username": user, "password": password or ""})
    if mechanism == "OAUTHBEARER" and "sasl.oauthbearer.token.endpoint.url" in properties:
        return properties | _java_login(_TOKEN_MODULE, token_options, handler=_TOKEN_HANDLER)
    return properties


def _java_login(module: str, options: Mapping[str, str], *, handler: str = "") -> dict[str, str]:
    # The client reads \\uXXXX as text, so other letters than ASCII stay as they are.
    written = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in options.items())
    login = {"sasl.jaas.config": f"{module} required {written};"}
    return login | ({"sasl.login.callback.handler.class": handler} if handler else {})


def _token_options(properties: dict[str, str]) -> dict[str, str]:
    """Take librdkafka's properties of tokens out, all but the address; as options of the Java client's login."""
    taken = {name: properties.pop(f"sasl.oauthbearer.{name}", "") for name in ("method", "scope", "extensions")}
    options = {"scope": taken["scope"]} if taken["scope"] else {}
    for java, ours in (("clientId", "id"), ("clientSecret", "secret")):
        names = (f"sasl.oauthbearer.client.{ours}", f"sasl.oauthbearer.client.credentials.{ours}")  # two of one thing
        if given := [value for name in names if (value := properties.pop(name, ""))]:
            options[java] = given[0]
    for extension in filter(None, taken["extensions"].split(",")):
        name, _, value = extension.partition("=")
        options[f"extension_{name}"] = value
    if ca := _text(properties, "https.ca"):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca}
    return options


def _certificates(properties: dict[str, str]) -> dict[str, str]:
    """Take certificates and key out of the properties."""
    found: dict[str, str] = {}
    for name, (store, property) in _PEM.items():
        if text := _text(properties, name):
            found |= {f"{store}.type": "PEM", property: text}
    return found


def _refuse_other_keys(cluster: Cluster, key: str) -> None:
    if key and not re.search("-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", key):
        found = re.search("-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----", key)
        raise KeyNotPkcs8(cluster=cluster.name, found=found[1] if found else "no private key")


def _text(properties: dict[str, str], name: str) -> str:
    """Take a certificate or key out of the properties; its text."""
    text, location = properties.pop(f"{name}.pem", ""), properties.pop(f"{name}.location", "")
    return text or (Path(location).read_text() if location else "")
