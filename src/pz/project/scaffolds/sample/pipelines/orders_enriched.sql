-- Every flight order with the names, the aircraft and the weather that belong to it. The result is written twice: as a
-- parquet file, and merged into a DuckDB table in which each order keeps one row however often the project runs.
INSERT INTO [
  {{ sink('lake', 'orders_enriched', format: 'parquet', strategy: 'replace') }},
  {{ sink('warehouse', 'orders_enriched', strategy: 'merge', keys: ['carrier', 'flight', 'origin', 'time_hour']) }}
]
SELECT
  f.carrier,
  a.name AS airline,
  f.flight,
  f.origin,
  f.dest,
  d.name AS destination,
  f.time_hour,
  f.scheduled_at,
  f.departed_at,
  f.cancelled,
  f.dep_delay,
  f.arr_delay,
  coalesce(f.arr_delay > {{ var('late_after') }}, false) AS late,
  f.air_time,
  f.distance,
  f.tailnum,
  p.manufacturer,
  p.model,
  p.seats,
  w.temp,
  w.wind_speed,
  w.precip,
  w.visib
FROM {{ ref('stg_flights') }} AS f
JOIN {{ source('nyc', 'airlines') }} AS a ON a.carrier = f.carrier
LEFT JOIN {{ source('nyc', 'airports') }} AS d ON d.faa = f.dest
LEFT JOIN {{ ref('stg_planes') }} AS p ON p.tailnum = f.tailnum
LEFT JOIN {{ ref('stg_weather') }} AS w ON w.origin = f.origin AND w.time_hour = f.time_hour
