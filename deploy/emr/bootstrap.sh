#!/bin/bash
# Bootstrap action, on each node: unpacks /opt/kdi from an archive on S3. Its argument is the archive's URI; see docs/emr.md.
set -euo pipefail
sudo dnf install --assumeyes python3.11
sudo mkdir -p /opt/kdi
aws s3 cp "$1" - | sudo tar --extract --gzip --no-same-owner --directory /opt/kdi
sudo chown -R hadoop:hadoop /opt/kdi
