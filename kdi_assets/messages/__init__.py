"""Messages: the protocol of a source, a folder for each source, and the formats that turn bytes into records."""
