"""From a topic or a stream to a table of its rows: the main way, and what stands beside it."""
