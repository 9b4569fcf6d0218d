"""A batch: which cluster is started for it, and the command lines of the steps that are all it does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kdi_assets.runtime.emr.errors import LakeOnThisMachine

STEPS: Mapping[str, tuple[str, ...]] = {"drain": ("drain", "--all"), "refine": ("refine", "--all")}
"""Each step of a batch and its command. A step goes on where the one before was refused, as the commands do."""
BATCH_TAG, RUN_TAG = "kdi:batch", "kdi:run"
SET_BY_US = ("Name", "Steps", "StepConcurrencyLevel")
SET_BY_US_IN_INSTANCES = ("KeepJobFlowAliveWhenNoSteps", "TerminationProtected")
RUN_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class EmrBatch:
    """A cluster that is started for a batch and ends with it.

    Attributes:
        name: Lower-case letters, digits and underscores. With the run's id it is the name of the cluster.
        cron: When a batch begins, in UTC.
        cluster: The cluster as RunJobFlow takes it: release, instances, roles, bootstrap actions, subnet, log folder.
        most_minutes: How long a batch may take, the start of its cluster included, and each of its steps.
        environment: Variables of the commands; without ``AWS_REGION``, they have the deployment's. Whoever may describe
            the cluster reads them: secrets do not belong here, documents name them as ``{aws_secret: NAME}``.
        kdi: The command on the primary node.

    Raises:
        ValueError: The name has other characters, the time is not positive, or ``cluster`` sets what is set here.
    """

    name: str
    cron: str
    cluster: Mapping[str, Any]
    most_minutes: int = 180
    environment: Mapping[str, str] = field(default_factory=dict)
    kdi: str = "/opt/kdi/kdi"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_]+", self.name):
            raise ValueError(f"name is {self.name!r}; it takes lower-case letters, digits and underscores")
        if self.most_minutes < 1:
            raise ValueError(f"most_minutes is {self.most_minutes}; it takes a number from 1 on")
        instances = self.cluster.get("Instances", {})
        ours = [n for n in SET_BY_US if n in self.cluster] + [n for n in SET_BY_US_IN_INSTANCES if n in instances]
        if ours:
            why = "so that its steps follow one another and its cluster ends"
            raise ValueError(f"cluster has {', '.join(ours)}; a batch sets this itself, {why}")

    def cluster_name(self, run_id: str) -> str:
        """The name of the cluster that a run starts."""
        return f"kdi-{self.name}-{run_id}"

    def run_id(self, cluster_name: str) -> str | None:
        """The run that started the cluster; ``None``: it is not of this batch."""
        found = re.fullmatch(f"kdi-{self.name}-({RUN_ID})", cluster_name)
        return found[1] if found else None

    def request(self, run_id: str, *, lake: str, region: str) -> dict[str, Any]:
        """What RunJobFlow gets.

        Args:
            region: The deployment's: nothing on the nodes names one.

        Raises:
            LakeOnThisMachine: The lake is a folder, as a path or of ``file:``.
        """
        if urlsplit(lake).scheme in ("", "file"):
            raise LakeOnThisMachine(lake=lake)
        tags = [{"Key": BATCH_TAG, "Value": self.name}, {"Key": RUN_TAG, "Value": run_id}]
        return {
            **self.cluster,
            "Name": self.cluster_name(run_id),
            "Instances": {
                **self.cluster.get("Instances", {}),
                "KeepJobFlowAliveWhenNoSteps": False,
                "TerminationProtected": False,
            },
            "StepConcurrencyLevel": 1,
            "Steps": [
                {
                    "Name": name,
                    # The next step runs in any case, and after the last one the cluster ends.
                    "ActionOnFailure": "CONTINUE",
                    "HadoopJarStep": {"Jar": "command-runner.jar", "Args": self._command(words, lake, region)},
                }
                for name, words in STEPS.items()
            ],
            "Tags": [*self.cluster.get("Tags", ()), *tags],
        }

    def _command(self, words: tuple[str, ...], lake: str, region: str) -> list[str]:
        ours = {"KDI_LAKE": lake, "KDI_SPARK_MASTER": "yarn", "KDI_DRIVER": "own"}
        own = {} if "AWS_DEFAULT_REGION" in self.environment else {"AWS_REGION": region}
        variables = {**own, **self.environment, **ours}
        # A step that hangs ends on the cluster itself, also where nothing of ours runs any more.
        limit = ["timeout", "--kill-after=60", f"{self.most_minutes}m"]
        return ["env", *(f"{name}={value}" for name, value in sorted(variables.items())), *limit, self.kdi, *words]
