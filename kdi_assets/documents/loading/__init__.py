"""From YAML documents to streams: read with line numbers, validate, load. No Dagster."""
