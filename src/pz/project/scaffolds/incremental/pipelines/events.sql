-- Merging by the key makes a repeated slice harmless: an event that comes twice still has one row.
INSERT INTO {{ sink('warehouse', 'events', strategy: 'merge', keys: ['id']) }}
SELECT id, user_name, action, occurred_at
FROM {{ source('app', 'events') }}
