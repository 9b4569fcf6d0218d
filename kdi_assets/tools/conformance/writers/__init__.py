"""The commands of the adapters that come with the suite; each module runs as a program of its own."""
