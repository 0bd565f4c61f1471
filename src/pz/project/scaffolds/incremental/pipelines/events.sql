-- Merging by the key makes a repeated slice harmless: an event that comes twice still has one row. Where a slice has an event in
-- two versions, dedupe_by says which one counts: the one with the highest cursor.
INSERT INTO {{ sink('warehouse', 'events', strategy: 'merge', keys: ['id'], dedupe_by: 'occurred_at') }}
SELECT id, user_name, action, occurred_at
FROM {{ source('app', 'events') }}
