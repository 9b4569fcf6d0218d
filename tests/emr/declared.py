"""A batch for tests, and the environment in which boto3 finds the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kdi_assets.runtime.emr.batch import EmrBatch

REGION = "eu-central-1"
BATCH = EmrBatch(
    name="nightly",
    cron="0 3 * * *",
    most_minutes=90,
    environment={"HADOOP_CONF_DIR": "/etc/hadoop/conf"},
    cluster={
        "ReleaseLabel": "emr-7.9.0",
        "LogUri": "s3://example-logs/emr",
        "ServiceRole": "kdi-emr",
        "JobFlowRole": "kdi-emr-nodes",
        "Applications": [{"Name": "Hadoop"}],
        "BootstrapActions": [
            {
                "Name": "kdi",
                "ScriptBootstrapAction": {"Path": "s3://example/bootstrap.sh", "Args": ["s3://example/kdi.tar.gz"]},
            }
        ],
        "Instances": {"MasterInstanceType": "m7g.xlarge", "SlaveInstanceType": "m7g.xlarge", "InstanceCount": 3},
        "Tags": [{"Key": "team", "Value": "data"}],
    },
)


def batch(**changes: Any) -> EmrBatch:
    """The batch with other fields."""
    return replace(BATCH, **changes)


def environment(endpoint: str) -> Mapping[str, str]:
    """Variables by which boto3 calls the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAKEYOFTHETEST",
        "AWS_SECRET_ACCESS_KEY": "the-secret-key-of-aws",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
