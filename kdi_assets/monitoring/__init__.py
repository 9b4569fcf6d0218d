"""What streams do: backlog, freshness, table facts, metrics, checks. No Dagster."""
