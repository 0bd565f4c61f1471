-- One PUT per customer: sent again, it writes what is there already.
INSERT INTO {{ sink('hooks', 'customers', strategy: 'merge', keys: ['customer'], path: '/customers/{key}') }}
SELECT customer, count(*) AS charges, sum(amount) AS total
FROM {{ ref('charges') }}
WHERE status = 'succeeded'
GROUP BY customer
