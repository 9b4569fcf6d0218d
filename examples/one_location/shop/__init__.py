"""A project with a table of KDI Assets and an asset of its own."""
