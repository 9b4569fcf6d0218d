"""The YAML documents: one stream or cluster each, in the file defs.yaml of a folder."""
