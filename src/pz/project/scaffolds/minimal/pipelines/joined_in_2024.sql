-- One pipeline: read a source, shape it with DuckDB SQL, load it into a sink.
INSERT INTO {{ sink('lake', 'joined_in_2024', format: 'parquet', strategy: 'replace') }}
SELECT id, name, joined
FROM {{ source('here', 'people') }}
WHERE joined >= DATE '2024-01-01'
