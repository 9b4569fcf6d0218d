"""Delta tables as files and logs: reading, writing, one commit. Knows neither streams nor documents."""
