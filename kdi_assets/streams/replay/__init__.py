"""Drained messages judged again by the present definition: the messages of dates, and dead letters."""
