-- Towline's tables. Times are microseconds since 1970, UTC. Read with plain SQL through the views
-- at the end: they stay as they are, while tables may change with a release.
-- A CHECK says BETWEEN and not IN: the list of an IN is built anew for every row, 3 µs each time.

-- One row per job; written once. Only arguments change, by on_conflict="replace".
CREATE TABLE {job} (
    id INTEGER PRIMARY KEY,
    chain_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    task TEXT NOT NULL,
    label TEXT,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (typeof(priority) = 'integer'),
    max_attempts INTEGER NOT NULL CHECK (typeof(max_attempts) = 'integer'),
    timeout INTEGER CHECK (timeout IS NULL OR typeof(timeout) = 'integer'),
    key TEXT,
    blockers INTEGER NOT NULL CHECK (typeof(blockers) = 'integer'),
    policy INTEGER NOT NULL CHECK (policy BETWEEN 0 AND 2 AND typeof(policy) = 'integer'),
    arguments TEXT NOT NULL,
    trace TEXT,
    created_at INTEGER NOT NULL
);
-- A chain's later jobs, and one successor per job; the first job has the chain's own id.
CREATE UNIQUE INDEX {prefix}job_chain ON {job} (chain_id, position) WHERE position > 0;
-- Lists by queue, by task, or both: walked group by group.
CREATE INDEX {prefix}job_lane ON {job} (queue, task, id);
CREATE INDEX {prefix}job_label ON {job} (label, id) WHERE label IS NOT NULL;
CREATE INDEX {prefix}job_key ON {job} (key, id) WHERE key IS NOT NULL;

-- One narrow row per open job, clustered in the order of claiming: there is no other path to it,
-- so ANALYZE has nothing to spoil. Address a row by its whole key.
-- state: 0 pending, 1 scheduled, 2 blocked, 3 running, 4 parked (set aside)
-- parked_for: why it is set aside, which brings it back: task:NAME waits for a worker that knows the task.
-- worker: who has claimed it. started_at: NULL while a job that was claimed ahead has not begun.
-- One value of another type would stop every worker that reads it, so the types are checked.
CREATE TABLE {live} (
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4 AND typeof(state) = 'integer'),
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (typeof(priority) = 'integer'),
    job_id INTEGER NOT NULL CHECK (typeof(job_id) = 'integer'),
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (typeof(attempt) = 'integer'),
    used INTEGER NOT NULL DEFAULT 0 CHECK (typeof(used) = 'integer'),
    lost INTEGER NOT NULL DEFAULT 0 CHECK (typeof(lost) = 'integer'),
    open_blockers INTEGER NOT NULL DEFAULT 0
        CHECK (open_blockers >= 0 AND typeof(open_blockers) = 'integer'),
    run_at INTEGER CHECK (run_at IS NULL OR typeof(run_at) = 'integer'),
    claimed_at INTEGER CHECK (claimed_at IS NULL OR typeof(claimed_at) = 'integer'),
    started_at INTEGER CHECK (started_at IS NULL OR typeof(started_at) = 'integer'),
    worker INTEGER CHECK (worker IS NULL OR typeof(worker) = 'integer'),
    progress REAL,
    progress_text TEXT,
    parked_for TEXT,
    PRIMARY KEY (state, queue, priority DESC, job_id)
) WITHOUT ROWID;
CREATE INDEX {prefix}live_due ON {live} (run_at) WHERE state = 1;
-- What one reason has set aside in one queue, in the order of claiming.
CREATE INDEX {prefix}live_parked ON {live} (parked_for, queue, priority DESC, job_id) WHERE state = 4;

-- One row per ended attempt, inserted once. The one that ended the job is final; retry clears that.
-- run_at: the time a job was meant for that ended while it waited, should it be revived.
-- error_type: the class of the error with its module, where the attempt raised one.
-- outcome: 1 completed, 2 continued, 3 failed, 4 timeout, 5 snoozed, 6 cancelled, 7 lost, 8 released
CREATE TABLE {attempt} (
    job_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    outcome INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 8 AND typeof(outcome) = 'integer'),
    final INTEGER CHECK (final = 1),
    worker TEXT,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    output TEXT,
    error TEXT,
    error_type TEXT,
    progress REAL,
    progress_text TEXT,
    blocker INTEGER,
    continued_by INTEGER,
    ended_by TEXT,
    run_at INTEGER,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
-- Lists of failed and cancelled jobs.
CREATE INDEX {prefix}attempt_bad ON {attempt} (job_id) WHERE final = 1 AND outcome NOT IN (1, 2);

-- One row per chain, updated once, when it ends. state: 0 open, 1 completed, 2 failed, 3 cancelled
CREATE TABLE {chain} (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3 AND typeof(state) = 'integer'),
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    trace TEXT
);
CREATE INDEX {prefix}chain_bad ON {chain} (id) WHERE state IN (2, 3);

-- Which chain has a key. One upsert decides; the row is replaced when its chain is out of scope.
CREATE TABLE {key} (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    chain_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

-- An edge: the job waits for the chain. Deleted with either of them.
CREATE TABLE {blocker} (
    chain_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT,
    trace TEXT,
    PRIMARY KEY (chain_id, job_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX {prefix}blocker_job ON {blocker} (job_id, position);

-- A running worker; its one lease covers everything it holds.
CREATE TABLE {worker} (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    birth TEXT,
    version TEXT NOT NULL,
    queues TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL
);

-- A queue has a row only while it is paused.
CREATE TABLE {queue} (
    name TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT
) WITHOUT ROWID;

-- Ended jobs by minute, written by whoever ends them; slot keeps writers apart (a worker's id).
-- removed counts those that were deleted, pruned or retried since. h0..h7: run time below
-- 1 ms, 10 ms, 100 ms, 1 s, 10 s, 100 s, 1000 s, and above.
CREATE TABLE {rollup} (
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    outcome INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    h0 INTEGER NOT NULL, h1 INTEGER NOT NULL, h2 INTEGER NOT NULL, h3 INTEGER NOT NULL,
    h4 INTEGER NOT NULL, h5 INTEGER NOT NULL, h6 INTEGER NOT NULL, h7 INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, task, outcome, slot)
) WITHOUT ROWID;

-- Remembered positions: the lowest id that may be given out, where retention stopped.
CREATE TABLE {mark} (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- Applied migrations.
CREATE TABLE {migration} (
    name TEXT PRIMARY KEY,
    applied_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Jobs for people: states in words, ISO times, the running attempt.
CREATE VIEW {jobs} AS
SELECT j.id, j.chain_id, j.position, j.task, j.label, j.queue, j.priority, j.key,
       CASE WHEN l.job_id IS NOT NULL
            THEN CASE WHEN l.state = 1 THEN 'scheduled' WHEN l.state = 2 THEN 'blocked'
                      WHEN l.state = 3 AND l.started_at IS NOT NULL THEN 'running' ELSE 'pending' END
            WHEN a.outcome IN (1, 2) THEN 'completed'
            WHEN a.outcome = 6 THEN 'cancelled'
            ELSE 'failed' END AS state,
       CASE WHEN l.parked_for = 'task:' || j.task THEN 'no running worker knows task ' || j.task END AS reason,
       coalesce(l.attempt, a.number) AS attempt,
       j.max_attempts,
       l.open_blockers,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', l.run_at / 1000000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(l.started_at, a.started_at) / 1000000.0, 'unixepoch') AS started_at,
       CASE WHEN l.job_id IS NULL
            THEN strftime('%Y-%m-%dT%H:%M:%fZ', a.ended_at / 1000000.0, 'unixepoch') END AS ended_at,
       coalesce(w.name, a.worker) AS worker,
       coalesce(l.progress, a.progress) AS progress,
       coalesce(l.progress_text, a.progress_text) AS progress_text,
       j.arguments,
       CASE WHEN l.job_id IS NULL THEN a.output END AS output,
       a.error, a.continued_by, a.ended_by
  FROM {job} AS j
  LEFT JOIN {live} AS l ON l.state IN (0, 1, 2, 3, 4) AND l.queue = j.queue AND l.priority = j.priority AND l.job_id = j.id
  LEFT JOIN {attempt} AS a ON a.job_id = j.id AND a.number = (SELECT max(m.number) FROM {attempt} AS m WHERE m.job_id = j.id)
  LEFT JOIN {worker} AS w ON w.id = l.worker;

-- Attempts for people: the ended ones and those running now.
CREATE VIEW {attempts} AS
SELECT a.job_id, a.number,
       CASE a.outcome WHEN 1 THEN 'completed' WHEN 2 THEN 'continued' WHEN 3 THEN 'failed' WHEN 4 THEN 'timeout'
            WHEN 5 THEN 'snoozed' WHEN 6 THEN 'cancelled' WHEN 7 THEN 'lost' ELSE 'released' END AS outcome,
       a.final, a.worker, a.ended_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', a.started_at / 1000000.0, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', a.ended_at / 1000000.0, 'unixepoch') AS ended_at,
       a.output, a.error, a.error_type, a.progress, a.progress_text
  FROM {attempt} AS a
UNION ALL
SELECT l.job_id, l.attempt, 'running', NULL, w.name, NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', l.started_at / 1000000.0, 'unixepoch'), NULL,
       NULL, NULL, NULL, l.progress, l.progress_text
  FROM {live} AS l LEFT JOIN {worker} AS w ON w.id = l.worker
 WHERE l.state = 3 AND l.started_at IS NOT NULL;

-- Chains for people.
CREATE VIEW {chains} AS
SELECT c.id, c.task, j.label, j.key,
       CASE c.state WHEN 0 THEN 'open' WHEN 1 THEN 'completed' WHEN 2 THEN 'failed' ELSE 'cancelled' END AS state,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.ended_at / 1000000.0, 'unixepoch') AS ended_at
  FROM {chain} AS c JOIN {job} AS j ON j.id = c.id;
