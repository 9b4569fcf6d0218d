#!/usr/bin/env bash
# What a pull request of documents must pass. It ends at the first failure, with the exit code of the command that failed.
#
# STAGING_BROKERS: their newest messages are drained into a new lake, which is removed at the end. All tables lie in it,
# also those whose document names a `lake` of its own; nothing is announced, registered, or sent to a webhook.
# PRODUCTION_BROKERS, PRODUCTION_LAKE: only read; use credentials that can do nothing else. So are the lakes that documents
# name: give their variables production's values.
# SINCE: from which time on messages are drained; default: of the last hour.
set -euo pipefail
: "${STAGING_BROKERS:?}" "${PRODUCTION_BROKERS:?}" "${PRODUCTION_LAKE:?}"
export KDI_DEFS=${KDI_DEFS:-$PWD/streams} KDI_AUTOMATION=off
export OPENLINEAGE_DISABLED=true
unset DAGSTER_HOME KDI_KAFKA KDI_CATALOG KDI_ALERT_WEBHOOK

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
