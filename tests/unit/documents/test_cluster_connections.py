"""How a cluster's document says the connection: its mistakes, and what librdkafka and the Java client get."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.connections.client_values import EnvironmentVariableMissing
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.kafka.client import client_config
from kdi_assets.messages.kafka.errors import AwsCredentialsMissing, KeyNotPkcs8
from kdi_assets.messages.kafka.msk import fresh_token, signing_keys
from kdi_assets.messages.kafka.reader import java_client_config
from kdi_assets.messages.kafka.security import client_properties
from tests.conftest import CHECKOUT
from tests.documents import mistakes_of, stream, written

PAGE = CHECKOUT / "docs" / "connections.md"
PEM = "-----BEGIN CERTIFICATE-----"
USER = "username: kdi, password: {env: KDI_T_PASSWORD}"
TOKEN = "mechanism: OAUTHBEARER, token_endpoint: 'https://l/t', client_id: kdi, client_secret: {env: KDI_T_SECRET}"


def document(fields: str) -> str:
    """The document of a cluster with these fields."""
    attributes = f'name: main, bootstrap_servers: "b:9092", {fields}'
    return f"type: kdi_assets.components.KafkaCluster\nattributes: {{{attributes}}}\n"


def cluster(folder: Path, fields: str) -> Cluster:
    written(folder, kafka=document(fields), s=stream("bronze/s"))
    return load_streams(folder)["bronze/s"].kafka


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("sasl: {mechanism: GSSAPI}", "sasl.mechanism: takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS"),
        ("sasl: {username: kdi}", "sasl.mechanism: is missing; e.g. mechanism: SCRAM-SHA-512"),
        ("sasl: {mechanism: PLAIN, username: kdi}", "sasl: PLAIN needs password; give sasl.password as well"),
        (f"sasl: {{mechanism: OAUTHBEARER, {USER}}}", "sasl.username: does not go with OAUTHBEARER; it takes token_en"),
        (f"sasl: {{mechanism: PLAIN, {USER}, connection_string: {{env: C}}}}", "sasl.username: does not go with PLAIN"),
        (f"sasl: {{{TOKEN}, region: eu-central-1}}", "sasl.region: does not go with OAUTHBEARER; it takes token_endpo"),
        (
            "sasl: {mechanism: AWS_MSK_IAM, region: here}",
            "sasl.region: 'here' is not a region of AWS; e.g. eu-central-1",
        ),
        (
            f"sasl: {{{TOKEN}, extensions: {{auth: x}}}}",
            "sasl.extensions: 'auth' is not a name of an extension; letters",
        ),
        (f"sasl: {{{TOKEN}, extensions: {{a: 'x,y'}}}}", "sasl.extensions: a: 'x,y' is not a value of an extension"),
        ("tls: {cert: c}", "tls.cert: no such field; did you mean certificate?"),
        ("tls: yes please", "tls: takes a mapping, not 'yes please'; e.g. {ca: /etc/kdi/ca.pem}"),
        ("tls: {key: k}", "tls: there is a key and no certificate; give tls.certificate as well"),
        (
            f"sasl: {{mechanism: PLAIN, {USER}}}, properties: {{sasl.username: you}}",
            "properties.sasl.username: is decided by tls and sasl; remove it, or write all of the connection as",
        ),
        ("tls: true, properties: {security.protocol: PLAINTEXT}", "properties.security.protocol: is decided by tls"),
        ("tls: true, properties: {ssl.ca.location: c}", "properties.ssl.ca.location: is decided by tls and sasl"),
    ],
)
def test_a_mistake_names_its_line_and_field_and_is_the_only_one(tmp_path: Path, fields: str, said: str) -> None:
    written(tmp_path, kafka=document(fields), s=stream("bronze/s"))

    found = mistakes_of(tmp_path)

    assert [m.startswith(f"kafka/defs.yaml:2 {said}") for m in found] == [True], found


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ("sasl: {mechanism: PLAIN, username: kdi, password: hush}", "sasl.password"),
        ("sasl: {mechanism: PLAIN, connection_string: hush}", "sasl.connection_string"),
        (f"sasl: {{{TOKEN.replace('{env: KDI_T_SECRET}', 'hush')}}}", "sasl.client_secret"),
        ('tls: {certificate: c, key: "-----BEGIN PRIVATE KEY----- hush"}', "tls.key"),
        ("tls: {certificate: c, key: k, key_password: hush}", "tls.key_password"),
        ("properties: {sasl.password: hush}", "properties.sasl.password"),
        ("properties: {ssl.key.password: hush}", "properties.ssl.key.password"),
        ("properties: {sasl.oauthbearer.client.secret: hush}", "properties.sasl.oauthbearer.client.secret"),
        ("properties: {sasl.jaas.config: hush}", "properties.sasl.jaas.config"),
        ('properties: {ssl.key.pem: "-----BEGIN PRIVATE KEY----- hush"}', "properties.ssl.key.pem"),
    ],
)
def test_a_secret_in_a_document_is_refused_and_not_repeated(tmp_path: Path, fields: str, field: str) -> None:
    written(tmp_path, kafka=document(fields), s=stream("bronze/s"))

    (found,) = mistakes_of(tmp_path)

    assert found.startswith(f"kafka/defs.yaml:2 {field}: ")
    assert "belongs in no document" in found
    assert "hush" not in found


@pytest.mark.parametrize(
    ("fields", "protocol"),
    [
        ("tls: true", "SSL"),
        (f"tls: {{ca: '{PEM} x'}}", "SSL"),
        ("tls: false", "PLAINTEXT"),
        (f"sasl: {{mechanism: PLAIN, {USER}}}", "SASL_SSL"),
        (f"tls: false, sasl: {{mechanism: PLAIN, {USER}}}", "SASL_PLAINTEXT"),
    ],
)
def test_a_login_goes_over_tls_unless_the_document_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, protocol: str
) -> None:
    monkeypatch.setenv("KDI_T_PASSWORD", "hush")
    found = cluster(tmp_path, fields)

    assert client_config(found)["security.protocol"] == java_client_config(found)["security.protocol"] == protocol


def test_other_properties_stay_beside_the_fields_and_without_fields_nothing_is_added(tmp_path: Path) -> None:
    beside = cluster(tmp_path / "a", "tls: true, properties: {ssl.endpoint.identification.algorithm: none}")
    alone = cluster(tmp_path / "b", "properties: {security.protocol: SSL}")

    assert client_properties(beside) == {"ssl.endpoint.identification.algorithm": "none", "security.protocol": "SSL"}
    assert client_properties(alone) == {"security.protocol": "SSL"}


def test_certificates_are_files_or_texts_for_librdkafka_and_texts_for_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "both.pem").write_text(f"{PEM} -----BEGIN PRIVATE KEY----- both")
    monkeypatch.setenv("KDI_T_CA", f"{PEM} ca")
    monkeypatch.setenv("KDI_T_LOCK", "hush")
    found = cluster(
        tmp_path, f"tls: {{ca: {{env: KDI_T_CA}}, certificate: {tmp_path}/both.pem, key_password: {{env: KDI_T_LOCK}}}}"
    )
    java = java_client_config(found)

    assert client_properties(found) == {
        "security.protocol": "SSL",
        "ssl.ca.pem": f"{PEM} ca",
        "ssl.certificate.location": f"{tmp_path}/both.pem",
        "ssl.key.location": f"{tmp_path}/both.pem",
        "ssl.key.password": "hush",
    }
    assert java["ssl.truststore.certificates"] == f"{PEM} ca"
    assert java["ssl.keystore.certificate.chain"] == java["ssl.keystore.key"]
    assert java["ssl.keystore.key"] == f"{PEM} -----BEGIN PRIVATE KEY----- both"
    assert (java["ssl.key.password"], str(tmp_path) in str(java)) == ("hush", False)


@pytest.mark.parametrize("form", ["EC PRIVATE KEY", "RSA PRIVATE KEY"])
def test_a_key_that_only_librdkafka_reads_is_refused(tmp_path: Path, form: str) -> None:
    (tmp_path / "c.key").write_text(f"-----BEGIN {form}-----\nhush\n-----END {form}-----\n")
    found = cluster(tmp_path, f"tls: {{certificate: {tmp_path}/c.pem, key: {tmp_path}/c.key}}")
    (tmp_path / "c.pem").write_text(PEM)

    with pytest.raises(KeyNotPkcs8, match=rf"\({form}\)") as refused:
        java_client_config(found)

    assert "hush" not in str(refused.value)


def test_a_token_endpoint_is_the_same_for_both_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_T_SECRET", 'hu"sh é')
    more = f"token_endpoint_ca: '{PEM} x', scope: kafka, extensions: {{logicalCluster: lkc-1, identityPoolId: pool-2}}"
    found = cluster(tmp_path, f"sasl: {{{TOKEN}, {more}}}")
    java = java_client_config(found)

    assert client_properties(found) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://l/t",
        "sasl.oauthbearer.client.id": "kdi",
        "sasl.oauthbearer.client.secret": 'hu"sh é',
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
        "https.ca.pem": f"{PEM} x",
    }
    assert java["sasl.mechanism"] == "OAUTHBEARER"
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://l/t"
    assert java["sasl.login.callback.handler.class"].endswith(".OAuthBearerLoginCallbackHandler")
    assert java["sasl.jaas.config"].endswith(
        'OAuthBearerLoginModule required scope="kafka" clientId="kdi" clientSecret="hu\\"sh é" '
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2" ssl.truststore.type="PEM" '
        f'ssl.truststore.certificates="{PEM} x";'
    )
    assert [name for name in java if name.startswith(("sasl.oauthbearer", "https"))] == [
        "sasl.oauthbearer.token.endpoint.url"
    ]


def test_the_same_token_endpoint_may_be_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_T_SECRET", "hush")
    by_fields = cluster(tmp_path / "a", f"sasl: {{{TOKEN}}}")
    names = "".join(
        f"sasl.oauthbearer.{name}: {value}, "
        for name, value in (
            ("method", "oidc"),
            ("token.endpoint.url", "'https://l/t'"),
            ("client.id", "kdi"),
            ("client.credentials.secret", "{env: KDI_T_SECRET}"),
        )
    )
    by_properties = cluster(
        tmp_path / "b", f"properties: {{security.protocol: SASL_SSL, sasl.mechanism: OAUTHBEARER, {names}}}"
    )

    assert java_client_config(by_properties) == java_client_config(by_fields)


def test_a_connection_string_is_the_password_of_the_user_that_event_hubs_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_T_STRING", "Endpoint=sb://n/;SharedAccessKey=hush")
    found = cluster(tmp_path, "sasl: {mechanism: PLAIN, connection_string: {env: KDI_T_STRING}}")

    assert client_properties(found)["sasl.username"] == "$ConnectionString"
    assert client_properties(found)["sasl.password"] == "Endpoint=sb://n/;SharedAccessKey=hush"
    assert 'username="$ConnectionString" password="Endpoint=sb://n/;' in java_client_config(found)["sasl.jaas.config"]


def test_a_variable_that_is_not_set_is_named_by_its_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDI_T_PASSWORD", raising=False)
    found = cluster(tmp_path, f"sasl: {{mechanism: PLAIN, {USER}}}")

    with pytest.raises(EnvironmentVariableMissing, match=r"cluster main: sasl\.password comes from .* KDI_T_PASSWORD"):
        client_config(found)


MSK = "sasl: {mechanism: AWS_MSK_IAM, region: eu-central-1}"
KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hush/+", "AWS_SESSION_TOKEN": "hush session=="}


def parameters(token: str) -> dict[str, str]:
    """Host and query of the address in a token of MSK."""
    address = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return {"host": str(address.hostname), **dict(parse_qsl(address.query, strict_parsing=True))}


@pytest.mark.parametrize("session", [True, False])
def test_a_token_for_msk_is_that_of_amazons_own_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: bool
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    if not session:
        monkeypatch.delenv("AWS_SESSION_TOKEN")
    found = cluster(tmp_path, MSK)

    while True:  # both sign within the same second
        (theirs, their_end), (ours, our_end) = (
            MSKAuthTokenProvider.generate_auth_token("eu-central-1"),
            fresh_token(found),
        )
        mine, other = parameters(ours), parameters(theirs)
        if mine["X-Amz-Date"] == other["X-Amz-Date"]:
            break

    assert {**mine, "User-Agent": ""} == {**other, "User-Agent": ""}
    assert (mine["host"], mine["Action"], mine["X-Amz-Expires"]) == (
        "kafka.eu-central-1.amazonaws.com",
        "kafka-cluster:Connect",
        "900",
    )
    assert abs(our_end - their_end / 1000) <= 1
    assert "hush" not in repr(signing_keys(found))


def test_for_msk_librdkafka_asks_us_for_tokens_and_the_java_client_signs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    found = cluster(tmp_path, MSK)
    rd, java = client_config(found), java_client_config(found)

    assert (rd["security.protocol"], rd["sasl.mechanisms"]) == ("SASL_SSL", "OAUTHBEARER")
    assert parameters(rd["oauth_cb"]("")[0])["X-Amz-Credential"].startswith("AKID/")
    assert java["sasl.mechanism"] == "OAUTHBEARER"
    assert java["sasl.login.callback.handler.class"] == "kdi.kafka.MskLogin"
    assert java["sasl.jaas.config"].endswith(
        'region="eu-central-1" accessKeyId="AKID" secretAccessKey="hush/+" sessionToken="hush session==";'
    )


def test_without_keys_of_aws_no_broker_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    found = cluster(tmp_path, MSK)

    for ask in (client_config, java_client_config):
        with pytest.raises(AwsCredentialsMissing, match="no role, no profile and no variables"):
            ask(found)


EXAMPLES = re.findall(r"^```yaml\n(type: .*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_has_an_example_of_every_way() -> None:
    found = "".join(EXAMPLES)

    for way in ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "connection_string:", "certificate:", "ca:"):
        assert way in found, way


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: str(re.findall(r"name: (\S+)", text)[0]))
def test_every_example_of_the_page_is_a_right_document(tmp_path: Path, example: str) -> None:
    (name,) = re.findall(r"^  name: (\S+)", example, re.MULTILINE)
    written(tmp_path, kafka=example, s=stream("bronze/s", more=f", cluster: {name}"))

    assert load_streams(tmp_path)["bronze/s"].kafka.connects_by_fields
