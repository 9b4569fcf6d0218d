"""The SBOM, and the check of the locks against known vulnerabilities."""

from __future__ import annotations

import json
import re
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kdi_assets.runtime.jars import locked_jars
from supply_chain import audit_lock
from supply_chain.advisories import find_vulnerable
from supply_chain.bundled import with_bundled
from supply_chain.locks import PACKAGES_LOCK, Component, LockNotRead, locked_components
from supply_chain.maven_version import is_older
from supply_chain.sbom import sbom

OLD = Component("PyPI", "urllib3", "1.26.4", ("0" * 64,), "required")
NETTY = Component("Maven", "io.netty:netty-common", "4.1.114.Final", ("0" * 64,), "required")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    written: dict[str, Any] = json.loads(sbom(with_bundled(locked_components()), name="kdi-assets", version="1"))
    return written


def advisory(component: Component, *events: dict[str, str], **fields: Any) -> dict[str, Any]:
    """A record of OSV about a component."""
    package = {"ecosystem": component.ecosystem, "name": component.name}
    affected = {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}
    return {"id": "GHSA-x", "aliases": ["CVE-2026-1"], "summary": "a hole", "affected": [affected], **fields}


def test_the_sbom_has_every_line_of_the_locks_with_version_and_hashes(document: dict[str, Any]) -> None:
    locked = re.findall(r"^([\w.-]+?)(?:\[[\w,]+\])?==(\S+)", PACKAGES_LOCK.read_text(), re.MULTILINE)
    hashes = set(re.findall(r"sha256:(\w{64})", PACKAGES_LOCK.read_text()))

    components = document["components"]
    purls = {component["purl"] for component in components}
    assert len(locked) > 100
    assert {f"pkg:pypi/{name}@{version}" for name, version in locked} <= purls
    of_jars = ["pkg:maven/{}/{}@{}".format(*jar.coordinate.split(":")) for jar in locked_jars()]
    assert {*of_jars} <= purls
    found = {hash_["content"] for component in components for hash_ in component["hashes"]}
    assert hashes | {jar.sha256 for jar in locked_jars()} <= found
    assert all(component["version"] and component["hashes"] for component in components)
    assert any(component["name"] == "hadoop-client-api" and "properties" in component for component in components)


def test_the_sbom_is_one_by_cyclonedx_own_schema(document: dict[str, Any]) -> None:
    schemas = files("cyclonedx.schema._res")

    def schema(name: str) -> Any:
        return json.loads(schemas.joinpath(f"{name}.SNAPSHOT.schema.json").read_text())

    registry = jsonschema_rs.Registry(
        [(f"http://cyclonedx.org/schema/{n}.schema.json", schema(n)) for n in ("spdx", "jsf-0.82")]
        + [(f"http://cyclonedx.org/schema/{n}.SNAPSHOT.schema.json", schema(n)) for n in ("spdx", "jsf-0.82")]
    )

    validator = jsonschema_rs.validator_for(schema("bom-1.6"), registry=registry)

    assert [str(error) for error in validator.iter_errors(document)] == []
    assert not validator.is_valid({**document, "components": [{"name": "of no type"}]})


@pytest.mark.parametrize("line", ["urllib3==2.5.0", "urllib3>=2 --hash=sha256:" + "0" * 64, "-r other.txt"])
def test_a_line_of_a_lock_that_is_not_one_version_with_hashes_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"# a comment\n{line}\n")

    with pytest.raises(LockNotRead, match=re.escape(str(lock))):
        locked_components(packages=lock)


@pytest.mark.parametrize(
    ("component", "events", "fixed_in"),
    [
        (OLD, [{"introduced": "0"}, {"fixed": "1.26.5"}], "1.26.5"),
        (OLD, [{"introduced": "2.0"}, {"fixed": "2.5.0"}, {"introduced": "0"}, {"fixed": "1.26.18"}], "1.26.18"),
        (OLD, [{"introduced": "1.26.4"}], ""),
        (OLD, [{"introduced": "0"}, {"last_affected": "1.26.4"}], ""),
        (NETTY, [{"introduced": "0"}, {"fixed": "4.1.115"}], "4.1.115"),
        (NETTY, [{"introduced": "4.1.0.Beta1"}, {"last_affected": "4.1.114"}], ""),
        (OLD, [{"introduced": "0"}, {"fixed": "1.26.4"}], None),
        (OLD, [{"introduced": "1.26.5"}], None),
        (OLD, [{"introduced": "0"}, {"fixed": "1.25"}, {"introduced": "2.0"}], None),
        (OLD, [{"introduced": "0"}, {"last_affected": "1.26.3"}], None),
        (NETTY, [{"introduced": "0"}, {"fixed": "4.1.114.Final"}], None),
        (NETTY, [{"introduced": "4.2.0.Alpha1"}], None),
    ],
)
def test_a_version_is_found_if_it_lies_in_a_range_and_not_once_it_is_fixed(
    component: Component, events: list[dict[str, str]], fixed_in: str | None
) -> None:
    found = find_vulnerable([component], [advisory(component, *events)])

    assert [(f.component, f.fixed_in, f.certain) for f in found] == (
        [] if fixed_in is None else [(component, fixed_in, True)]
    )


def test_a_listed_version_is_found_a_withdrawn_advisory_is_not_and_two_publishers_count_once() -> None:
    (listed,) = advisory(OLD)["affected"]
    listed |= {"ranges": [], "versions": ["1.26.3", "1.26.4"]}
    same = advisory(OLD, {"introduced": "0"}, id="PYSEC-1", aliases=["GHSA-x"])
    withdrawn = advisory(OLD, {"introduced": "0"}, id="GHSA-y", aliases=[], withdrawn="2026-01-01T00:00:00Z")
    unreadable = advisory(OLD, {"introduced": "0"}, {"fixed": "the next one"}, id="GHSA-z", aliases=[])

    found = find_vulnerable([OLD], [advisory(OLD, affected=[listed]), same, withdrawn, unreadable])

    assert [(f.advisory, f.certain) for f in found] == [("GHSA-x", True), ("GHSA-z", False)]


def test_the_clients_of_yarn_hdfs_and_kubernetes_are_named_which_are_in_pysparks_wheel() -> None:
    """No engine has a group of jars of its own in the lock."""
    inside = {c.name.rpartition(":")[2] for c in with_bundled(locked_components()) if c.inside}

    assert {"spark-yarn_2.13", "hadoop-client-api", "spark-kubernetes_2.13", "kubernetes-client"} <= inside


def test_the_check_prints_a_table_of_what_is_planted_and_nothing_once_it_is_fixed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Into the databases of both ecosystems, one packed and one as files, about versions that are locked today."""
    locked = {component.name: component for component in locked_components()}
    package, jar = locked["urllib3"], locked["io.delta:delta-storage"]
    netty = next(c for c in with_bundled(locked.values()) if c.name == "io.netty:netty-common" and c.inside)

    def plant(fix: str) -> int:
        with zipfile.ZipFile(tmp_path / "PyPI.zip", "w") as archive:
            archive.writestr("GHSA-x.json", json.dumps(advisory(package, {"introduced": "0"}, {"fixed": fix})))
        for n, one in enumerate((jar, netty)):
            record = advisory(one, {"introduced": "0"}, {"fixed": fix}, id=f"GHSA-{n}", aliases=[])
            (tmp_path / f"GHSA-{n}.json").write_text(json.dumps(record))
        return audit_lock.main([str(tmp_path)])

    bad, printed = plant("999"), capsys.readouterr()
    good, nothing = plant("0.0.1"), capsys.readouterr()

    assert (bad, good) == (1, 0)
    lines = [line.split("  ")[0].strip() for line in printed.out.splitlines()]
    assert lines == ["COMPONENT", "io.delta:delta-storage", "io.netty:netty-common", "urllib3"]
    assert re.search(rf"urllib3 +{re.escape(package.version)} +required +GHSA-x CVE-2026-1 +999 +a hole", printed.out)
    assert "advisories: 2 of Maven, 1 of PyPI; 3 found" in printed.err
    assert nothing.out == ""


@pytest.mark.parametrize("content", ["", "no JSON", json.dumps(advisory(OLD, {"introduced": "0"}))])
def test_a_database_that_cannot_answer_for_packages_and_jars_is_no_clean_bill(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    if content:
        (tmp_path / "one.json").write_text(content)

    code = audit_lock.main([str(tmp_path)])

    assert code == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "versions",
    [
        ["1-alpha", "1-beta2", "1-beta10", "1-milestone1", "1-rc1", "1-snapshot", "1", "1-sp", "1-foo2", "1-foo10"],
        ["1-sp-1", "1-ga-1", "1.1"],
        ["1.foo", "1-1", "1.1", "1.1.1", "1.2", "1.10", "2-rc1", "2"],
        ["4.1.0.Beta1", "4.1.0.CR1", "4.1.0.Final", "4.1.114.Final", "4.2.13.Final"],
        ["1-ga.1", "1-sp.1"],
    ],
)
def test_versions_are_in_the_order_of_mavens_specification(versions: list[str]) -> None:
    for n, one in enumerate(versions):
        for other in versions[n + 1 :]:
            assert (is_older(one, other), is_older(other, one)) == (True, False), (one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "1.0.0"), ("1.ga", "1"), ("1-ga", "1.final"), ("1-0", "1."), ("1-", "1"), ("1-a1", "1-alpha-1"),
     ("1.0.0-foo.0.0", "1-foo"), ("1.0.0-0.0.0", "1"), ("1.foo", "1-foo"),
     ("1-1.foo-bar1baz-.1", "1-1.foo-bar-1-baz-0.1"),
     ("2.0.RELEASE", "2"), ("1-cr2", "1-rc-2")],
)  # fmt: skip
def test_versions_that_maven_takes_for_equal_are_equal(one: str, other: str) -> None:
    assert not is_older(one, other)
    assert not is_older(other, one)
