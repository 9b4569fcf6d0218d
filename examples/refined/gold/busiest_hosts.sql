SELECT date, host, sessions, place
FROM (SELECT *, row_number() OVER (PARTITION BY date ORDER BY sessions DESC, host) AS place FROM daily_usage)
WHERE place <= 3
