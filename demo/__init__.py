"""What to run first: `make demo` shows the main job once, `make dev` keeps everything running.

What can be copied is in ``examples/``: folders of documents, some of which a demo plays.
"""
