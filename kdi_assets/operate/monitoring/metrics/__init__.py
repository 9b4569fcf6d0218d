"""Metrics: what streams do, as Prometheus scrapes it; computed when asked, nothing polls in between."""
