"""A Python worker that has the packages of others and not this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

WORKER = """
import pickle, sys

class Nowhere:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "kdi_assets":
            raise ImportError(name)

sys.meta_path.insert(0, Nowhere())
function, arguments = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(function(*arguments)))
"""


def called_in_bare_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function that was sent as Spark sends functions."""
    import pickle

    from pyspark import cloudpickle

    sent = cloudpickle.dumps((function, arguments))  # type: ignore[no-untyped-call]
    run = subprocess.run([sys.executable, "-c", WORKER], input=sent, capture_output=True, check=False)
    assert not run.returncode, run.stderr.decode()
    return pickle.loads(run.stdout)
