"""Clusters of Amazon EMR that live as long as a batch. Knows no Dagster."""
