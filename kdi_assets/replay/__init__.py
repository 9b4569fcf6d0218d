"""Messages that were drained, judged again by today's definition: those of dates, and dead letters."""
