"""Packages and classes of the JVM that remember what their names are; py4j's own ask the JVM each time.

Importing this module loads py4j, so do it only with a JVM.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

PACKAGES = frozenset(
    package
    for path in (
        "io.delta",
        "java.lang",
        "java.util",
        "kdi.avro",
        "kdi.drain",
        "kdi.expressions",
        "kdi.formats",
        "kdi.json",
        "kdi.parquet",
        "kdi.protobuf",
        "kdi.runtime",
        "org.apache.hadoop.fs",
        "org.apache.kafka.common",
        "org.apache.spark.api.java",
        "org.apache.spark.api.python",
        "org.apache.spark.sql.api.python",
        "org.apache.spark.sql.catalyst.expressions.objects",
        "org.apache.spark.sql.classic",
        "org.apache.spark.sql.delta.actions",
        "org.apache.spark.sql.delta.commands",
        "org.apache.spark.sql.kafka010",
        "org.apache.spark.sql.types",
        "org.apache.spark.util",
        "scala.reflect",
    )
    for package in accumulate(path.split("."), "{}.{}".format)
)
"""Names of packages, which the JVM is not asked for: to find that a name is no class, it searches every jar, and that
for each package that PySpark imports."""


def remembering(found: Any) -> Any:
    """What py4j has found; the view of a JVM, a package or a class asks for each of its names once from now on."""
    if kind := _KINDS.get(type(found)):
        found.__class__ = kind
    return found


class _Remembering:
    def __getattr__(self, name: str) -> Any:
        found = remembering(super().__getattr__(name))  # type: ignore[misc]  # of py4j's class
        if isinstance(found, JavaPackage | JavaClass | JavaMember):  # a static field may have another value later
            setattr(self, name, found)
        return found


class _KnownView(_Remembering, JVMView):  # type: ignore[misc]  # py4j has no types
    """Of ``org`` as of ``org.apache.spark.sql.functions``, which is a name to py4j as well."""

    def __getattr__(self, name: str) -> Any:
        if name not in PACKAGES:
            return super().__getattr__(name)
        return _package(self, name, name, self._id)


class _KnownPackage(_Remembering, JavaPackage):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        if (path := f"{self._fqn}.{name}") not in PACKAGES:
            return super().__getattr__(name)
        return _package(self, name, path, self._jvm_id)


class _KnownClass(_Remembering, JavaClass):  # type: ignore[misc]
    pass


def _package(inside: _KnownView | _KnownPackage, name: str, path: str, jvm: str) -> _KnownPackage:
    package = _KnownPackage(path, inside._gateway_client, jvm)
    setattr(inside, name, package)
    return package


_KINDS = {JVMView: _KnownView, JavaPackage: _KnownPackage, JavaClass: _KnownClass}
