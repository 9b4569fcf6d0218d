"""Every offset accounted for: what the ledger says against what is in the tables and in Kafka."""
