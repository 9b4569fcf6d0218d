#!/usr/bin/env bash
# What a pull request of documents must pass. It ends at the first failure, with the exit code of the command that failed.
#
# STAGING_BROKERS: their newest messages are drained into a new lake, which is removed at the end. A document with a
# `lake` of its own would be drained into that one: write it with a variable that is not set here.
# PRODUCTION_BROKERS, PRODUCTION_LAKE: only read; use credentials that can do nothing else.
# SINCE: from which time on messages are drained; default: of the last hour.
set -euo pipefail
: "${STAGING_BROKERS:?}" "${PRODUCTION_BROKERS:?}" "${PRODUCTION_LAKE:?}"
export KDI_DEFS=${KDI_DEFS:-$PWD/streams} KDI_AUTOMATION=off
unset DAGSTER_HOME KDI_KAFKA

echo "== drain messages of staging into a new lake, and make every check"
lake=$(mktemp -d)
trap 'rm -rf "$lake"' EXIT
START_AT=${SINCE:-$(date -u -d '1 hour ago' +%Y-%m-%dT%H:%M:%SZ)} \
  KDI_LAKE=$lake KAFKA_BROKERS=$STAGING_BROKERS kdi check-assets

export KDI_LAKE=$PRODUCTION_LAKE KAFKA_BROKERS=$PRODUCTION_BROKERS
echo "== compare the documents with production's tables"
kdi check
echo "== what production's next runs would do"
kdi plan
