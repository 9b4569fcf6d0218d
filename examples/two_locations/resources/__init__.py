"""Resources of the project."""
