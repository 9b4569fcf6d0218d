"""Packages and classes of the JVM that remember what their names are; py4j's own ask the JVM each time.

Importing this module loads py4j, so do it only with a JVM.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


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


class _KnownPackage(_Remembering, JavaPackage):  # type: ignore[misc]
    pass


class _KnownClass(_Remembering, JavaClass):  # type: ignore[misc]
    pass


_KINDS = {JVMView: _KnownView, JavaPackage: _KnownPackage, JavaClass: _KnownClass}
