"""YAML documents to streams: read with line numbers, checked, loaded. No Dagster."""
