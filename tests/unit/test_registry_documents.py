"""The document of a registry: what it becomes, who may name it, and its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.components.load import load_streams
from kdi_assets.connections import EnvironmentVariableMissing, SchemaRegistry, Tls
from kdi_assets.message_format import JsonRegistry, RegistrySchemas
from tests.documents import CLUSTER, OF_REGISTRY, REGISTRY, mistakes_of, stream, written


def registry(attributes: str) -> str:
    return f"type: kdi_assets.components.SchemaRegistry\nattributes: {{{attributes}}}\n"


def named(folder: Path, document: str) -> SchemaRegistry | None:
    """The registry of the only stream of a folder."""
    written(folder, kafka=CLUSTER, registry=document, a=stream("a", record=OF_REGISTRY))
    return load_streams(folder)["a"].registry


def test_messages_of_json_behind_a_frame_may_have_to_be_as_their_schema_says(tmp_path: Path) -> None:
    of_json = "format: {json: {registry: main, version: 3, validate: true}}"
    written(tmp_path, kafka=CLUSTER, registry=REGISTRY, a=stream("a", record=of_json))

    kept_at = SchemaRegistry("main", "https://registry:8081")
    assert load_streams(tmp_path)["a"].format == JsonRegistry(RegistrySchemas(kept_at, "t-value", 3), validate=True)


def test_only_what_is_written_becomes_a_property(tmp_path: Path) -> None:
    document = registry(
        "name: main, url: https://registry/path/, username: kdi, password: p, proxy: 'http://us:er@proxy:3128',"
        " tls: {ca: ca.pem, certificate: c.pem, key: c.key}"
    )

    assert named(tmp_path, document) == SchemaRegistry(
        "main",
        "https://registry/path",
        username="kdi",
        password="p",
        proxy="http://us:er@proxy:3128",
        tls=Tls(ca="ca.pem", certificate="c.pem", key="c.key"),
    )


SECRETS = (
    "name: main, url: https://registry, username: {env: KDI_T_U}, password: {env: KDI_T_P}, proxy: {env: KDI_T_X},"
    " tls: {certificate: c.pem, key_password: {env: KDI_T_K}}"
)


def test_secrets_are_read_from_the_environment_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = named(tmp_path, registry(SECRETS))
    assert found is not None
    with pytest.raises(EnvironmentVariableMissing, match=r"registry main: tls\.key_password comes from .* KDI_T_K"):
        found.properties["tls.key_password"]

    for letter in "UPXK":
        monkeypatch.setenv(f"KDI_T_{letter}", f"hush {letter}")

    assert dict(found.properties) == {
        "tls.certificate": "c.pem",
        "username": "hush U",
        "password": "hush P",
        "proxy": "hush X",
        "tls.key_password": "hush K",
    }
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ("name: main", "url: is missing; e.g. url: https://registry:8081"),
        ("name: a b, url: https://r", "name: 'a b' is not a registry's name; letters, digits, '_' and '-', e.g. main"),
        ("name: main, url: registry:8081", "url: 'registry:8081' is not the address of a registry; e.g"),
        ("name: main, url: 'https://us:er@r'", "url: holds user or password; write them as username and password"),
        ("name: main, url: https://r, username: kdi", "attributes: of username and password one is missing; give"),
        ("name: main, url: https://r, username: kdi, password: 1234", "password: takes text, not 1234; put it in"),
        ("name: main, url: https://r, proxy: proxy", "proxy: 'proxy' is not the address of a proxy; e.g"),
        ("name: main, url: https://r, tls: {key: c.key}", "tls: there is a key and no certificate; give"),
        ("name: main, url: https://r, tls: {cert: c}", "tls.cert: no such field; known: ca, certificate, key, key_pas"),
    ],
)
def test_a_mistake_says_what_would_be_right_and_is_the_only_one(tmp_path: Path, attributes: str, said: str) -> None:
    written(tmp_path, kafka=CLUSTER, registry=registry(attributes), a=stream("a", record=OF_REGISTRY))

    found = [m for m in mistakes_of(tmp_path) if not m.startswith("a/")]

    assert [m.startswith(f"registry/defs.yaml:2 {said}") for m in found] == [True], found
