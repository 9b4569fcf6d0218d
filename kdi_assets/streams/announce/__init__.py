"""Announcements: messages that name the files of each version of a table, for consumers that read files."""
