-- One row per flight order: a departure that a carrier scheduled. Clock times in the source are numbers such as 517 or
-- 2400, in local time; here they become timestamps. What never happened stays NULL.
SELECT
  carrier,
  flight,
  origin,
  dest,
  tailnum,
  time_hour,
  make_timestamp(year, month, day, hour, minute, 0) AS scheduled_at,
  make_timestamp(year, month, day, hour, minute, 0) + to_minutes(dep_delay) AS departed_at,
  dep_time IS NULL AS cancelled,
  dep_delay,
  arr_delay,
  air_time,
  distance
FROM {{ source('nyc', 'flights') }}
