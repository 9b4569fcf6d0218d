"""What stands beside the product: proposals, imports, conformance, servers for work on one machine."""
