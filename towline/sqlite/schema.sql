-- Towline's tables. Times are microseconds since 1970, UTC. Read with plain SQL through the views
-- at the end: they stay as they are, while tables may change with a release.
-- A CHECK says BETWEEN and not IN: the list of an IN is built anew for every row, 3 µs each time.

-- One row per job; written once. Only arguments change, by on_conflict="replace".
-- lane: of its queue, the jobs with which it takes turns; weight: as how many it counts against a limit, NULL is one.
-- expires_at: it is not started after that. schedule, tick: whose tick it is, and which.
-- ordered: 1, it waits for the chain that had its key before.
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
    lane TEXT,
    weight INTEGER CHECK (weight IS NULL OR typeof(weight) = 'integer'),
    expires_at INTEGER CHECK (expires_at IS NULL OR typeof(expires_at) = 'integer'),
    schedule TEXT,
    tick INTEGER CHECK (tick IS NULL OR typeof(tick) = 'integer'),
    ordered INTEGER CHECK (ordered IS NULL OR typeof(ordered) = 'integer'),
    created_at INTEGER NOT NULL
);
-- A chain's later jobs, and one successor per job; the first job has the chain's own id.
CREATE UNIQUE INDEX {prefix}job_chain ON {job} (chain_id, position) WHERE position > 0;
-- Lists by queue, by task, or both: walked group by group.
CREATE INDEX {prefix}job_strip ON {job} (queue, task, id);
CREATE INDEX {prefix}job_label ON {job} (label, id) WHERE label IS NOT NULL;
CREATE INDEX {prefix}job_key ON {job} (key, id) WHERE key IS NOT NULL;
CREATE INDEX {prefix}job_schedule ON {job} (schedule, id) WHERE schedule IS NOT NULL;

-- One narrow row per open job, clustered in the order of claiming: there is no other path to it,
-- so ANALYZE has nothing to spoil. Address a row by its whole key.
-- state: 0 pending, 1 scheduled, 2 blocked, 3 running, 4 set aside: parked, or in its lane
-- parked_for: why it is parked, which brings it back: task:NAME waits for a worker that knows the task.
-- lane, weight: as in {job}; a job that has a lane waits there, and is pending for people. NULL for all others.
-- run_at: from when on it could begin: its time, the end of its last blocker, or its return.
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
    run_at INTEGER NOT NULL CHECK (typeof(run_at) = 'integer'),
    claimed_at INTEGER CHECK (claimed_at IS NULL OR typeof(claimed_at) = 'integer'),
    started_at INTEGER CHECK (started_at IS NULL OR typeof(started_at) = 'integer'),
    worker INTEGER CHECK (worker IS NULL OR typeof(worker) = 'integer'),
    progress REAL,
    progress_text TEXT,
    parked_for TEXT,
    lane TEXT,
    weight INTEGER CHECK (weight IS NULL OR typeof(weight) = 'integer'),
    PRIMARY KEY (state, queue, priority DESC, job_id)
) WITHOUT ROWID;
CREATE INDEX {prefix}live_due ON {live} (run_at) WHERE state = 1;
-- What one reason has set aside in one queue, and what waits in one lane, in the order of claiming.
CREATE INDEX {prefix}live_parked ON {live} (parked_for, queue, priority DESC, job_id)
    WHERE state = 4 AND parked_for IS NOT NULL;
CREATE INDEX {prefix}live_lane ON {live} (queue, lane, priority DESC, job_id)
    WHERE state = 4 AND lane IS NOT NULL AND parked_for IS NULL;

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

-- An edge: the job waits for the chain. Deleted with either of them. position: as declared; below 0, it is not.
-- in_line: 1, that chain had the job's key before.
CREATE TABLE {blocker} (
    chain_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT,
    trace TEXT,
    in_line INTEGER,
    PRIMARY KEY (chain_id, job_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX {prefix}blocker_job ON {blocker} (job_id, position);

-- A running worker; its one lease covers everything it holds. declares: a hash of all that its code declares.
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
    lease_until INTEGER NOT NULL,
    declares TEXT
);

-- A queue has a row only while it is paused; '*' is every queue.
CREATE TABLE {queue} (
    name TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT
) WITHOUT ROWID;

-- A schedule: when to store which job, again and again. It has either cron, an expression, or every.
-- template: the call, as JSON. declared: what code has last said of it, as a hash, NULL if it was made at run
-- time; declared_in: all that was declared beside it. next_at: NULL when there is no tick any more.
-- last_chain: the chain of the newest job, for overlap. ticks have got a job, skipped and missed have not.
CREATE TABLE {schedule} (
    name TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    template TEXT NOT NULL,
    cron TEXT,
    every INTEGER CHECK (every IS NULL OR typeof(every) = 'integer'),
    tz TEXT NOT NULL,
    start_at INTEGER CHECK (start_at IS NULL OR typeof(start_at) = 'integer'),
    end_at INTEGER CHECK (end_at IS NULL OR typeof(end_at) = 'integer'),
    jitter INTEGER NOT NULL CHECK (typeof(jitter) = 'integer'),
    catch_up INTEGER NOT NULL CHECK (typeof(catch_up) = 'integer'),
    overlap TEXT NOT NULL,
    declared TEXT,
    declared_in TEXT,
    paused_at INTEGER,
    paused_by TEXT,
    next_at INTEGER CHECK (next_at IS NULL OR typeof(next_at) = 'integer'),
    last_tick INTEGER,
    last_chain INTEGER,
    ticks INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX {prefix}schedule_next ON {schedule} (task, next_at) WHERE paused_at IS NULL AND next_at IS NOT NULL;
CREATE INDEX {prefix}schedule_task ON {schedule} (task, name);
CREATE INDEX {prefix}schedule_declared ON {schedule} (task, declared_in) WHERE declared IS NOT NULL;

-- What may run and begin. lane: '' is the queue itself, whose row is also its gate: who holds it may claim under the
-- limits of the queue and of its lanes; '*' is each lane, else one lane, instead of '*'. NULL: no limit of that kind.
-- per: microseconds. spent: what began in the last window, as pairs (end of a slot, weight) in JSON; opens_at: when the
-- rate lets the next begin; turn: the last served_at that was given to a lane, which only grows. These are the queue's.
-- declared: what the code said of it last, as JSON; NULL where a person did. declared_in: all that was declared beside it.
CREATE TABLE {limit} (
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    concurrency INTEGER CHECK (concurrency >= 0),
    rate INTEGER CHECK (rate > 0),
    per INTEGER CHECK (per > 0),
    spent TEXT,
    opens_at INTEGER,
    turn INTEGER NOT NULL DEFAULT 0,
    declared TEXT,
    declared_in TEXT,
    changed_at INTEGER,
    changed_by TEXT,
    PRIMARY KEY (queue, lane)
) WITHOUT ROWID;
CREATE INDEX {prefix}limit_declared ON {limit} (queue, declared_in) WHERE declared IS NOT NULL;

-- A lane of a queue: its jobs take turns with those of others. The row is here while one of them waits or ran lately.
-- closed: 0 open, 1 full, 2 until opens_at (by its rate, or a handler asked for it), 3 empty, kept for what it has spent.
-- priority: of its first job, or of one that was there. served_at: when it had its last turn, or was filled.
CREATE TABLE {lane} (
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    closed INTEGER NOT NULL CHECK (closed BETWEEN 0 AND 3 AND typeof(closed) = 'integer'),
    priority INTEGER NOT NULL CHECK (typeof(priority) = 'integer'),
    served_at INTEGER NOT NULL CHECK (typeof(served_at) = 'integer'),
    opens_at INTEGER,
    spent TEXT,
    PRIMARY KEY (queue, lane)
) WITHOUT ROWID;
CREATE INDEX {prefix}lane_open ON {lane} (queue, priority DESC, served_at) WHERE closed = 0;
CREATE INDEX {prefix}lane_opens ON {lane} (queue, opens_at) WHERE closed > 0;

-- What people did, where a name was given: who, what, and to how many. Read newest first.
-- number: NULL where another line counts the job, as one of many. chosen: what an action on many was about,
-- as JSON. A line goes with its job; one without a job with the age of history.
CREATE TABLE {audit} (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    done_by TEXT NOT NULL,
    action TEXT NOT NULL,
    job_id INTEGER,
    queue TEXT,
    number INTEGER,
    chosen TEXT
);
CREATE INDEX {prefix}audit_job ON {audit} (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX {prefix}audit_queue ON {audit} (queue, id) WHERE queue IS NOT NULL;
CREATE INDEX {prefix}audit_told ON {audit} (id) WHERE number IS NOT NULL;
CREATE INDEX {prefix}audit_age ON {audit} (at) WHERE job_id IS NULL;

-- Ended jobs by minute, written by whoever ends them; slot keeps writers apart (a worker's id).
-- removed counts those that were deleted, pruned or retried since. duration and h0..h7: how long
-- those that ran took, together and how many below 1 ms, 10 ms, 100 ms, 1 s, 10 s, 100 s, 1000 s, and above;
-- waited and w0..w7: the same of how long they waited before, from run_at on.
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
    waited INTEGER NOT NULL,
    w0 INTEGER NOT NULL, w1 INTEGER NOT NULL, w2 INTEGER NOT NULL, w3 INTEGER NOT NULL,
    w4 INTEGER NOT NULL, w5 INTEGER NOT NULL, w6 INTEGER NOT NULL, w7 INTEGER NOT NULL,
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
       strftime('%Y-%m-%dT%H:%M:%fZ',
                max(j.created_at, coalesce(l.claimed_at, 0), coalesce(l.started_at, 0), coalesce(a.ended_at, 0),
                    CASE WHEN l.state = 0 THEN l.run_at ELSE 0 END) / 1000000.0, 'unixepoch') AS changed_at,
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
