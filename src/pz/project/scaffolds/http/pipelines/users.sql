INSERT INTO {{ sink('warehouse', 'users', strategy: 'merge', keys: ['id']) }}
SELECT id, displayName AS name, mail
FROM {{ source('graph', 'users') }}
