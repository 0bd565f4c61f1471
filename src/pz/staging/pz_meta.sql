-- The accounting schema of a run, version 1. It lives in the run's staging.duckdb beside the data that it accounts for
-- and is written only through pz.staging.meta, in the same transaction as that data.

CREATE SCHEMA staging;
CREATE SCHEMA pz_meta;

-- One sequence orders everything in a run; clocks order nothing.
CREATE SEQUENCE pz_meta.seq;

CREATE TABLE pz_meta.meta (
    version INTEGER PRIMARY KEY CHECK (version >= 1),
    run_id VARCHAR NOT NULL CHECK (run_id <> '')
);
COMMENT ON TABLE pz_meta.meta IS 'One row: the version of this schema and the run that owns the file';
COMMENT ON COLUMN pz_meta.meta.version IS 'Version of the pz_meta schema';
COMMENT ON COLUMN pz_meta.meta.run_id IS 'Run that the file belongs to; a file that was swapped between runs is refused';

CREATE TABLE pz_meta.partition_plan (
    node_id VARCHAR NOT NULL,
    partition_id VARCHAR NOT NULL CHECK (partition_id <> ''),
    ordinal BIGINT NOT NULL CHECK (ordinal >= 0),
    spec VARCHAR,
    PRIMARY KEY (node_id, partition_id),
    UNIQUE (node_id, ordinal)
);
COMMENT ON TABLE pz_meta.partition_plan IS 'The partitions of a load, pinned as they were enumerated';
COMMENT ON COLUMN pz_meta.partition_plan.node_id IS 'The source load';
COMMENT ON COLUMN pz_meta.partition_plan.partition_id IS 'Stable id that the connector gave the partition; never logged';
COMMENT ON COLUMN pz_meta.partition_plan.ordinal IS 'Place in the enumeration, from 0';
COMMENT ON COLUMN pz_meta.partition_plan.spec IS 'Opaque text from which the connector rebuilds the partition; NULL where it cannot';

CREATE TABLE pz_meta.plan_closed (
    node_id VARCHAR PRIMARY KEY,
    total BIGINT NOT NULL CHECK (total >= 0)
);
COMMENT ON TABLE pz_meta.plan_closed IS 'Loads whose enumeration ended cleanly; without a row more partitions may exist than are pinned';
COMMENT ON COLUMN pz_meta.plan_closed.node_id IS 'The source load';
COMMENT ON COLUMN pz_meta.plan_closed.total IS 'Number of partitions of the load';

CREATE TABLE pz_meta.partitions_done (
    node_id VARCHAR NOT NULL,
    partition_id VARCHAR NOT NULL CHECK (partition_id <> ''),
    row_count BIGINT NOT NULL CHECK (row_count >= 0),
    seq BIGINT NOT NULL UNIQUE,
    PRIMARY KEY (node_id, partition_id)
);
COMMENT ON TABLE pz_meta.partitions_done IS 'Partitions whose rows are all in the main table of their load';
COMMENT ON COLUMN pz_meta.partitions_done.node_id IS 'The source load';
COMMENT ON COLUMN pz_meta.partitions_done.partition_id IS 'The finished partition; never logged';
COMMENT ON COLUMN pz_meta.partitions_done.row_count IS 'Rows that it added to the main table, after the bounds were applied';
COMMENT ON COLUMN pz_meta.partitions_done.seq IS 'Order of completion';

CREATE TABLE pz_meta.partition_checkpoints (
    node_id VARCHAR NOT NULL,
    partition_id VARCHAR NOT NULL CHECK (partition_id <> ''),
    token VARCHAR NOT NULL,
    row_count BIGINT NOT NULL CHECK (row_count >= 0),
    PRIMARY KEY (node_id, partition_id)
);
COMMENT ON TABLE pz_meta.partition_checkpoints IS 'Partitions that were read in part and can be continued';
COMMENT ON COLUMN pz_meta.partition_checkpoints.node_id IS 'The source load';
COMMENT ON COLUMN pz_meta.partition_checkpoints.partition_id IS 'The unfinished partition; never logged';
COMMENT ON COLUMN pz_meta.partition_checkpoints.token IS 'Opaque token from which the connector continues; never logged';
COMMENT ON COLUMN pz_meta.partition_checkpoints.row_count IS 'The first so many rows of the part table are what the token covers';

CREATE TABLE pz_meta.node_window (
    node_id VARCHAR PRIMARY KEY,
    "lower" VARCHAR,
    lower_inclusive BOOLEAN NOT NULL,
    "upper" VARCHAR,
    upper_inclusive BOOLEAN NOT NULL,
    "cursor" VARCHAR NOT NULL,
    cursor_type VARCHAR
);
COMMENT ON TABLE pz_meta.node_window IS 'The slice that an incremental load reads, pinned before its first row; retries inherit it';
COMMENT ON COLUMN pz_meta.node_window.node_id IS 'The source load';
COMMENT ON COLUMN pz_meta.node_window."lower" IS 'Lower end of the slice as canonical text; NULL: open';
COMMENT ON COLUMN pz_meta.node_window.lower_inclusive IS 'Whether the lower end itself belongs to the slice';
COMMENT ON COLUMN pz_meta.node_window."upper" IS 'Upper end of the slice as canonical text; NULL: open';
COMMENT ON COLUMN pz_meta.node_window.upper_inclusive IS 'Whether the upper end itself belongs to the slice';
COMMENT ON COLUMN pz_meta.node_window."cursor" IS 'Cursor column';
COMMENT ON COLUMN pz_meta.node_window.cursor_type IS 'Cursor type in whose order the ends compare; NULL while unknown';

CREATE TABLE pz_meta.node_read (
    node_id VARCHAR PRIMARY KEY,
    pushed_columns VARCHAR[],
    predicate VARCHAR,
    shape VARCHAR
);
COMMENT ON TABLE pz_meta.node_read IS 'How a partitioned load is read, pinned before its first row; its partitions are all read alike';
COMMENT ON COLUMN pz_meta.node_read.node_id IS 'The source load';
COMMENT ON COLUMN pz_meta.node_read.pushed_columns IS 'Columns that the read is narrowed to; NULL: all';
COMMENT ON COLUMN pz_meta.node_read.predicate IS 'Row filter that the read is narrowed by; NULL: none';
COMMENT ON COLUMN pz_meta.node_read.shape IS 'Opaque text that pins the schema for every partition; NULL: none';

CREATE TABLE pz_meta.node_done (
    node_id VARCHAR PRIMARY KEY,
    "tables" VARCHAR[] NOT NULL CHECK (len("tables") >= 1),
    row_counts BIGINT[] NOT NULL,
    "columns" STRUCT("name" VARCHAR, "type" VARCHAR)[] NOT NULL,
    pushed_columns VARCHAR[],
    predicate VARCHAR,
    candidate VARCHAR,
    candidate_type VARCHAR,
    token VARCHAR,
    details VARCHAR,
    seq BIGINT NOT NULL UNIQUE,
    CHECK (len("tables") = len(row_counts))
);
COMMENT ON TABLE pz_meta.node_done IS 'Finished nodes; the row commits with the last rows of the node';
COMMENT ON COLUMN pz_meta.node_done.node_id IS 'The source load or pipeline';
COMMENT ON COLUMN pz_meta.node_done."tables" IS 'Every table of the node in schema staging, main table first, side tables after it';
COMMENT ON COLUMN pz_meta.node_done.row_counts IS 'Rows of each of these tables';
COMMENT ON COLUMN pz_meta.node_done."columns" IS 'Columns of the main table';
COMMENT ON COLUMN pz_meta.node_done.pushed_columns IS 'Columns that the read was narrowed to; NULL: all';
COMMENT ON COLUMN pz_meta.node_done.predicate IS 'Row filter that the read was narrowed by; NULL: none';
COMMENT ON COLUMN pz_meta.node_done.candidate IS 'Watermark that the run may store once every sink below has committed; canonical text';
COMMENT ON COLUMN pz_meta.node_done.candidate_type IS 'Cursor type of the candidate';
COMMENT ON COLUMN pz_meta.node_done.token IS 'Sync token that the run may store once every sink below has committed; never logged';
COMMENT ON COLUMN pz_meta.node_done.details IS 'Further facts of the node as JSON (change counts, inference findings); NULL: none';
COMMENT ON COLUMN pz_meta.node_done.seq IS 'Order of completion';

CREATE TABLE pz_meta.sink_attempts (
    node_id VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL CHECK (run_id <> ''),
    ordinal INTEGER NOT NULL CHECK (ordinal >= 1),
    state VARCHAR NOT NULL CHECK (state IN ('begun', 'committed', 'aborted', 'unknown')),
    marker VARCHAR,
    seq BIGINT NOT NULL UNIQUE,
    PRIMARY KEY (node_id, run_id, ordinal)
);
COMMENT ON TABLE pz_meta.sink_attempts IS 'Attempts at writing an output, of this run and of the runs that it continues';
COMMENT ON COLUMN pz_meta.sink_attempts.node_id IS 'The sink write';
COMMENT ON COLUMN pz_meta.sink_attempts.run_id IS 'Run that made the attempt';
COMMENT ON COLUMN pz_meta.sink_attempts.ordinal IS 'Number of the attempt within its run, from 1';
COMMENT ON COLUMN pz_meta.sink_attempts.state IS 'begun (recorded before the session began; in doubt if the process died), committed, aborted or unknown';
COMMENT ON COLUMN pz_meta.sink_attempts.marker IS 'By what its commit can be recognised: a mark left with its data, or the number of its transaction; NULL: by nothing';
COMMENT ON COLUMN pz_meta.sink_attempts.seq IS 'Order of the attempts';

CREATE TABLE pz_meta.sink_deliveries (
    node_id VARCHAR PRIMARY KEY,
    acknowledged_rows BIGINT NOT NULL CHECK (acknowledged_rows >= 0),
    fingerprint_rows BIGINT NOT NULL CHECK (fingerprint_rows >= 0),
    fingerprint_hash VARCHAR NOT NULL,
    seq BIGINT NOT NULL UNIQUE,
    CHECK (acknowledged_rows <= fingerprint_rows)
);
COMMENT ON TABLE pz_meta.sink_deliveries IS 'How far a resumable delivery has come; written before the first row is sent';
COMMENT ON COLUMN pz_meta.sink_deliveries.node_id IS 'The sink write';
COMMENT ON COLUMN pz_meta.sink_deliveries.acknowledged_rows IS 'Rows of the drain order that the destination has confirmed, without a gap from the first';
COMMENT ON COLUMN pz_meta.sink_deliveries.fingerprint_rows IS 'Rows of the relation that is delivered';
COMMENT ON COLUMN pz_meta.sink_deliveries.fingerprint_hash IS 'Order-independent hash of its content';
COMMENT ON COLUMN pz_meta.sink_deliveries.seq IS 'Order of the deliveries';

CREATE TABLE pz_meta.sink_accepted (
    node_id VARCHAR NOT NULL,
    row_offset BIGINT NOT NULL CHECK (row_offset >= 0),
    PRIMARY KEY (node_id, row_offset)
);
COMMENT ON TABLE pz_meta.sink_accepted IS 'Rows confirmed behind the first refused one; a resumed delivery skips them singly';
COMMENT ON COLUMN pz_meta.sink_accepted.node_id IS 'The sink write';
COMMENT ON COLUMN pz_meta.sink_accepted.row_offset IS 'Offset of the row in the drain order, from 0';
