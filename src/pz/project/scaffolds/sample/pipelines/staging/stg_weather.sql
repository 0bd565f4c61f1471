-- Hourly weather at the three airports of departure. An hour is identified in UTC (time_hour): on the night when
-- daylight saving time ends, the local hour occurs twice.
SELECT origin, time_hour, temp, wind_speed, precip, visib
FROM {{ source('nyc', 'weather') }}
