-- How each carrier did in each month. Integers and exact decimals only, so that equal input gives equal files.
INSERT INTO {{ sink('lake', 'delays_by_carrier', format: 'csv', strategy: 'replace') }}
SELECT
  carrier,
  airline,
  CAST(date_trunc('month', scheduled_at) AS DATE) AS month,
  count(*) AS flights,
  count(*) FILTER (WHERE cancelled) AS cancelled,
  count(*) FILTER (WHERE late) AS late,
  CAST(sum(arr_delay) AS BIGINT) AS minutes_late,
  max(arr_delay) AS worst_delay
FROM {{ ref('orders_enriched') }}
GROUP BY ALL
