-- The aircraft register; its year is the year of manufacture.
SELECT tailnum, year AS built, manufacturer, model, seats
FROM {{ source('nyc', 'planes') }}
