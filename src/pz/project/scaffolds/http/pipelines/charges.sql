INSERT INTO {{ sink('warehouse', 'charges', strategy: 'replace') }}
SELECT id, amount / 100 AS amount, currency, make_timestamp(created * 1000000) AS created_at, customer, status
FROM {{ source('stripe', 'charges') }}
