"""A Linux on which hard links fail, for one process and its children."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable

LINK_CALLS = {"x86_64": (86, 265), "aarch64": (37, 37)}
"""Numbers of link and linkat."""
_LOAD_NUMBER, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # of BPF
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl


def links_refused(errno: int) -> Callable[[], None]:
    """For ``preexec_fn``: the system answers every hard link of the process with this error.

    Source: seccomp(2), "Seccomp filter".
    """
    link, linkat = LINK_CALLS[platform.machine()]
    steps = [
        (_LOAD_NUMBER, 0, 0, 0),
        (_IF_EQUAL, 2, 0, link),
        (_IF_EQUAL, 1, 0, linkat),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    system = ctypes.CDLL(None, use_errno=True)

    def refuse() -> None:
        keep = (code, program)
        for call in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.addressof(keep[1]), 0, 0)):
            if system.prctl(*map(ctypes.c_ulong, call)):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return refuse
