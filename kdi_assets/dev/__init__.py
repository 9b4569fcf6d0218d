"""For a laptop: an embedded broker, and messages to try things out."""
