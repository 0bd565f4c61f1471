INSERT INTO {{ sink('warehouse', 'issues', strategy: 'merge', keys: ['id']) }}
SELECT id, number, title, state, "user".login AS author, len(labels) AS label_count, comments, updated_at
FROM {{ source('github', 'issues') }}
