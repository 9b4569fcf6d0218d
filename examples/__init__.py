"""What to run first: `make demo` shows the main job once, `make dev` keeps everything running."""
