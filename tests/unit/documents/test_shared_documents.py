"""Documents that others refer to: of a registry, and of streams that share a topic by routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.documents.loading.loader import LoadedFolder, load_streams, read_streams
from kdi_assets.documents.model.connections.client_values import EnvironmentVariableMissing, FromEnvironment
from kdi_assets.documents.model.connections.connections import Registry, Tls
from kdi_assets.documents.model.message_format import JsonRegistry, RegistrySchemas
from kdi_assets.documents.model.message_rules import Route, RouteMember
from tests.documents import CLUSTER, OF_REGISTRY, REGISTRY, mistakes_of, stream, written


def registry(attributes: str) -> str:
    return f"type: kdi_assets.components.SchemaRegistry\nattributes: {{{attributes}}}\n"


def named(folder: Path, document: str) -> Registry | None:
    """The registry of the only stream of a folder."""
    written(folder, kafka=CLUSTER, registry=document, a=stream("a", record=OF_REGISTRY))
    return load_streams(folder)["a"].registry


def test_messages_of_json_behind_a_frame_may_have_to_be_as_their_schema_says(tmp_path: Path) -> None:
    of_json = "format: {json: {registry: main, version: 3, validate: true}}"
    written(tmp_path, kafka=CLUSTER, registry=REGISTRY, a=stream("a", record=of_json))

    kept_at = Registry("main", "https://registry:8081")
    assert load_streams(tmp_path)["a"].format == JsonRegistry(RegistrySchemas(kept_at, "t-value", 3), validate=True)


def test_only_what_is_written_becomes_a_property(tmp_path: Path) -> None:
    document = registry(
        "name: main, url: https://registry/path/, username: kdi, password: {env: KDI_T_P}, proxy: 'http://proxy:3128',"
        " tls: {ca: ca.pem, certificate: c.pem, key: c.key}"
    )

    assert named(tmp_path, document) == Registry(
        "main",
        "https://registry/path",
        username="kdi",
        password=FromEnvironment("KDI_T_P"),
        proxy="http://proxy:3128",
        tls=Tls(ca="ca.pem", certificate="c.pem", key="c.key"),
    )


SECRETS = (
    "name: main, url: https://registry, username: {env: KDI_T_U}, password: {env: KDI_T_P}, proxy: {env: KDI_T_X},"
    " tls: {certificate: c.pem, key_password: {env: KDI_T_K}}"
)


def test_secrets_are_read_from_the_environment_at_their_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("name: main, url: https://r, username: kdi, password: 1234", "password: is a secret"),
        ("name: main, url: https://r, username: kdi, password: hush", "password: is a secret"),
        (
            "name: main, url: https://r, proxy: 'http://us:er@proxy:3128'",
            "proxy: holds user or password; write",
        ),
        ("name: main, url: https://r, proxy: 'us:er@proxy'", "proxy: holds user or password; write"),
        (
            "name: main, url: https://r, tls: {certificate: c, key_password: hush}",
            "tls.key_password: is a secret",
        ),
        ("name: main, url: https://r, proxy: proxy", "proxy: 'proxy' is not the address of a proxy; e.g"),
        ("name: main, url: https://r, tls: {key: c.key}", "tls: there is a key and no certificate; give"),
        ("name: main, url: https://r, tls: {cert: c}", "tls.cert: no such field; did you mean certificate?"),
    ],
)
def test_a_mistake_says_what_would_be_right_and_is_the_only_one(tmp_path: Path, attributes: str, said: str) -> None:
    written(tmp_path, kafka=CLUSTER, registry=registry(attributes), a=stream("a", record=OF_REGISTRY))

    found = [m for m in mistakes_of(tmp_path) if not m.startswith("a/")]

    assert [m.startswith(f"registry/defs.yaml:2 {said}") for m in found] == [True], found
    assert "hush" not in found[0] and "us:er@proxy" not in found[0]


ORDERS = ", route: {when: id < 10}"
PAYMENTS = ", route: {when: id < 20, rest: dead_letters}"


def loaded(folder: Path, **more: str) -> LoadedFolder:
    """The folder of three tables of one topic; ``more`` has further attributes."""
    given = {"orders": ORDERS, "payments": PAYMENTS, "refunds": ", route: {when: id < 30}", **more}
    documents = {name: stream(f"bronze/{name}", more=said) for name, said in given.items()}
    return read_streams(written(folder, cluster=CLUSTER, **documents), main_servers="")


def mistakes(folder: Path, **more: str) -> list[tuple[str, str, str]]:
    """File, field and message of each."""
    found = loaded(folder, **more).mistakes
    return [(Path(m.file).parent.name, m.field, m.message.replace(f"{folder}/", "")) for m in found]


def test_each_knows_the_group_and_who_has_the_rest_judges_by_the_conditions_of_the_others(tmp_path: Path) -> None:
    refunds = ", route: {when: id < 30}, app_id: r, status: retired"

    streams = loaded(tmp_path, refunds=refunds).streams

    group = {
        "bronze/orders": RouteMember("id < 10", rest=False, app_id="t"),
        "bronze/payments": RouteMember("id < 20", rest=True, app_id="t"),
        "bronze/refunds": RouteMember("id < 30", rest=False, app_id="r", retired=True),
    }
    assert streams["bronze/orders"].route == Route("id < 10", group=group)
    others = {"bronze/orders": "id < 10", "bronze/refunds": "id < 30"}
    assert streams["bronze/payments"].route == Route("id < 20", "dead_letters", others, group)
    assert {s.route_group for s in streams.values()} == {("main", "t")}


def test_streams_of_other_topics_and_those_without_a_route_are_no_part_of_the_group(tmp_path: Path) -> None:
    other = stream("bronze/other", more=", route: {rest: rows}").replace("topic: t,", "topic: u,")
    written(tmp_path, other=other, all=stream("bronze/all"))

    found = loaded(tmp_path)

    assert found.mistakes == []
    alone = {"bronze/other": RouteMember("", rest=True, app_id="u")}
    assert found.streams["bronze/other"].route == Route(rest="rows", group=alone)
    assert found.streams["bronze/all"].route is None


@pytest.mark.parametrize(
    ("more", "at", "said"),
    [
        ({"orders": ", route: {}"}, ("orders", "route"), "takes no message"),
        ({"orders": ", route: {when: ''}"}, ("orders", "route.when"), "is empty"),
        ({"payments": ", route: {rest: yes}"}, ("payments", "route.rest"), "takes dead_letters or rows, not True"),
        ({"payments": ", route: {when: id < 20}"}, ("orders", "route"), "no stream of t has the rest"),
        (
            {"refunds": ", route: {rest: rows}"},
            ("refunds", "route.rest"),
            "bronze/payments (payments/defs.yaml:2) has the rest of t already",
        ),
        (
            {"orders": f"{ORDERS}, compression: gzip"},
            ("orders", "compression"),
            "differs from that of bronze/payments (payments/defs.yaml:2)",
        ),
        ({"orders": f"{ORDERS}, contract: {{types: freeze}}"}, ("orders", "contract.types"), "differs from"),
        (
            {"orders": f"{ORDERS}, contract: {{new_columns: evolve}}"},
            ("orders", "contract"),
            "a record of the table's own",
        ),
        ({"orders": f"{ORDERS}, format: text"}, ("orders", "format"), "differs from"),
        (
            {"orders": f"{ORDERS}, mask: {{id: drop}}"},
            ("payments", "dead_letter_payload"),
            "dead letters of the rest would show id, which bronze/orders masks",
        ),
        (
            {"orders": f"{ORDERS}, tags: {{id: pii}}, mask_tagged: {{pii: drop}}"},
            ("payments", "dead_letter_payload"),
            "dead letters of the rest would show what is tagged pii, which bronze/orders masks",
        ),
    ],
)
def test_what_prevents_a_group_is_named(tmp_path: Path, more: dict[str, str], at: tuple[str, str], said: str) -> None:
    [(file, field, message)] = mistakes(tmp_path, **more)

    assert (file, field) == at
    assert said in message


def test_schemas_that_differ_in_their_blanks_alone_are_the_same(tmp_path: Path) -> None:
    spaced = stream("bronze/wide", record="schema: 'id   bigint'", more=", route: {when: id > 30}")
    other = stream("bronze/other", record="schema: id int", more=", route: {when: id > 30}")

    written(tmp_path, wide=spaced)
    assert mistakes(tmp_path) == []

    written(tmp_path, other=other)
    assert [(file, field) for file, field, _ in mistakes(tmp_path)] == [("other", "schema")]


def test_masks_that_the_rest_shares_or_letters_that_it_withholds_show_nothing(tmp_path: Path) -> None:
    masks = f"{ORDERS}, mask: {{id: null}}"

    assert mistakes(tmp_path, orders=masks, payments=f"{PAYMENTS}, mask: {{id: null}}") == []
    assert mistakes(tmp_path, orders=masks, payments=f"{PAYMENTS}, dead_letter_payload: withhold") == []
    by_tag = "tags: {id: pii}, mask_tagged: {pii: null}"
    assert mistakes(tmp_path, orders=f"{ORDERS}, {by_tag}", payments=f"{PAYMENTS}, {by_tag}") == []


def test_of_a_group_with_a_document_that_cannot_be_read_nothing_more_is_said(tmp_path: Path) -> None:
    assert [field for _, field, _ in mistakes(tmp_path, payments=f"{PAYMENTS}, tabel: x")] == ["tabel"]
