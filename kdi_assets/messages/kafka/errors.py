"""Errors of Kafka."""

from __future__ import annotations

from kdi_assets.errors import AGAIN, KdiError, Terminal, Transient

_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


class LeaderMissing(Transient):
    """The brokers know the topic, but at this moment a topic partition has no leader that answers."""

    cluster: str
    topic: str
    detail: str

    what_happened = "Kafka cluster {cluster}: no leader answers for all partitions of {topic!r} ({detail})."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = (
        "the same command again   (leaders change when a topic is new and when a broker restarts; if the error "
        "stays, check the brokers)"
    )


class TopicMissing(Terminal):
    """The cluster does not know the topic.

    Attributes:
        hint: Which topic may be meant, where someone looked.
    """

    cluster: str
    topic: str
    bootstrap_servers: str
    hint: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        at = f"{self.cluster} ({self.bootstrap_servers})"
        return (
            f"Kafka cluster {at} has no topic {self.topic!r}{f'; {self.hint}' if self.hint else '.'}",
            "nothing was read and nothing was written; positions stay as they are.",
            f"{AGAIN}   (first correct `topic:` or `cluster:` in the stream's document, or KDI_KAFKA; or create the "
            "topic)",
        )


class BrokerUnreachable(Transient):
    """No broker of the cluster answered in time, or it refused the connection."""

    cluster: str
    bootstrap_servers: str
    detail: str

    def message_parts(self) -> tuple[str, str, str]:
        """With the command of a local broker, if the address is one of this machine."""
        host, _, port = self.bootstrap_servers.rpartition(":")
        local = f"; kdi broker run --port {port} in another terminal starts one" if host in _THIS_MACHINE else ""
        return (
            f"Kafka cluster {self.cluster}: no answer from {self.bootstrap_servers} ({self.detail}).",
            "nothing was read and nothing was written.",
            f"{AGAIN}   (first check the brokers, and `bootstrap_servers` in the document or KDI_KAFKA{local})",
        )


class TopicUnanswered(BrokerUnreachable):
    """A topic or topic partition has no answer; brokers may answer for others."""


def no_broker_answered(refusal: KdiError) -> bool:
    """Whether the whole cluster is silent, and need not be asked again for another topic."""
    return isinstance(refusal, BrokerUnreachable) and not isinstance(refusal, TopicUnanswered)


class AccessRefused(Terminal):
    """The brokers refuse our credentials or rights; a retry with the same credentials may lock the account."""

    cluster: str
    bootstrap_servers: str
    refused: str
    detail: str

    what_happened = "Kafka cluster {cluster}: {bootstrap_servers} refuses {refused} ({detail})."
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "the same command again   (first correct tls and sasl (or the properties) of the cluster's document, the "
        "environment variables that it names, or the user's rights at the broker)"
    )


class CertificateNotTrusted(AccessRefused):
    """The certificate of a broker is signed by an authority that we do not trust, or is not valid now."""

    what_happened = "Kafka cluster {cluster}: the certificate of a broker is not trusted ({detail})."
    what_to_run = (
        "kdi doctor   (first give the authority that signed it as tls.ca of the cluster's document (as a property:"
        " ssl.ca.location or ssl.ca.pem); if it has expired, renew it at the broker)"
    )


class HostNameDiffers(AccessRefused):
    """The certificate of a broker is for another host name than the one that we connect to."""

    what_happened = "Kafka cluster {cluster}: the certificate of a broker is for another host ({detail})."
    what_to_run = (
        "kdi doctor   (first write the name that the certificate holds in bootstrap_servers, or correct the "
        "broker's advertised.listeners or its certificate)"
    )


class ClientCertificateMissing(AccessRefused):
    """The brokers ask for a client certificate, and the cluster's document has none."""

    what_happened = "Kafka cluster {cluster}: {bootstrap_servers} asks for a client certificate ({detail})."
    what_to_run = (
        "kdi doctor   (first give tls.certificate and tls.key in the cluster's document (as properties: "
        "ssl.certificate and ssl.key, each with .location or .pem))"
    )


class ClientCertificateRefused(AccessRefused):
    """The brokers do not trust our certificate, or it has expired."""

    what_happened = "Kafka cluster {cluster}: {bootstrap_servers} refuses our client certificate ({detail})."
    what_to_run = (
        "kdi doctor   (first give a certificate of an authority that the brokers trust as tls.certificate of the "
        "cluster's document (as a property: ssl.certificate), or renew it)"
    )


class KeyNotPkcs8(Terminal):
    """The key of our client certificate has a form that only librdkafka reads."""

    cluster: str
    found: str

    what_happened = (
        "Kafka cluster {cluster}: the key of our certificate is not PKCS #8, as Spark's client needs ({found})."
    )
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "openssl pkcs8 -topk8 -in KEY -out NEW; then kdi doctor   (with the new key as tls.key)"


class PasswordRefused(AccessRefused):
    """The brokers refuse user or password."""

    what_to_run = (
        "kdi doctor   (first correct sasl.username and sasl.password of the cluster's document, or the variables "
        "or the secret that they name)"
    )


class MechanismNotEnabled(AccessRefused):
    """The brokers do not offer the SASL mechanism."""

    what_happened = "Kafka cluster {cluster}: {bootstrap_servers} does not offer the SASL mechanism ({detail})."
    what_to_run = (
        "kdi doctor   (first write a mechanism that they offer as sasl.mechanism of the cluster's document (as a "
        "property: sasl.mechanisms))"
    )


class TokenRefused(AccessRefused):
    """The token endpoint gives no token, or the brokers refuse it."""

    what_happened = "Kafka cluster {cluster}: {bootstrap_servers} accepts no token of this client ({detail})."
    what_to_run = (
        "kdi doctor   (first correct sasl of the cluster's document (as properties: sasl.oauthbearer.*), or what "
        "the token endpoint, AWS and the brokers allow this client)"
    )


class AwsCredentialsMissing(Transient):
    """A cluster wants a login by IAM, and AWS gives us no keys, or not now."""

    cluster: str
    detail: str

    what_happened = "Kafka cluster {cluster}: sasl.mechanism is AWS_MSK_IAM, and AWS's clients find no keys ({detail})."
    what_is_safe = "no broker was asked; nothing was read and nothing was written."
    what_to_run = (
        "kdi doctor   (first give this machine a role, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY)"
    )


class RightMissing(AccessRefused):
    """The user lacks a right, as Kafka's ACLs name it."""

    what_to_run = "kdi doctor   (first grant the user this right at the broker)"


class SecurityProtocolDiffers(AccessRefused):
    """We speak plain text to a port that speaks TLS, or TLS to a port that speaks plain text."""

    what_happened = "Kafka cluster {cluster}: {detail}."
    what_to_run = (
        "kdi doctor   (first correct tls of the cluster's document (true or false; as a property: "
        "security.protocol), or the port)"
    )


class PropertyRefused(Terminal):
    """The client does not accept the properties of a cluster."""

    cluster: str
    detail: str

    what_happened = "Kafka cluster {cluster}: the client does not accept its properties: {detail}."
    what_is_safe = "no broker was asked; nothing was read and nothing was written."
    what_to_run = (
        "kdi doctor   (first correct `properties:` of the cluster's document; names and values are librdkafka's)"
    )


class AdvertisedUnreachable(Transient):
    """The cluster answers, but some of its advertised brokers accept no connection from here."""

    cluster: str
    unreachable: tuple[str, ...]
    brokers: int

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"Kafka cluster {self.cluster}: {len(self.unreachable)} of {self.brokers} brokers take no connection from "
            f"here: {', '.join(self.unreachable)}.",
            "nothing was read; drains of topic partitions that these brokers lead stop before they write.",
            f"{AGAIN}   (if the error stays, check these brokers, their advertised.listeners, and the network between)",
        )
