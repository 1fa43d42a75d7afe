-- Towline's tables. Times are microseconds since 1970, UTC. Read with plain SQL through the views
-- at the end: they stay as they are, while tables may change with a release.
-- Text is compared byte by byte (COLLATE "C"), as SQLite does it.

-- A plain sequence: no blocks of ids, which would break the order of age.
CREATE SEQUENCE {job_ids} AS bigint;

-- One row per job; written once. Only arguments change, by on_conflict="replace".
-- lane: of its queue, the jobs with which it takes turns; weight: as how many it counts against a limit, NULL is one.
-- expires_at: it is not started after that. schedule, tick: whose tick it is, and which.
-- ordered: 1, it waits for the chain that had its key before.
CREATE TABLE {job} (
    id bigint PRIMARY KEY,
    chain_id bigint NOT NULL,
    position integer NOT NULL,
    task text COLLATE "C" NOT NULL,
    label text COLLATE "C",
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    max_attempts integer NOT NULL,
    timeout bigint,
    key text COLLATE "C",
    blockers integer NOT NULL,
    policy smallint NOT NULL CHECK (policy BETWEEN 0 AND 2),
    arguments text NOT NULL,
    trace text,
    lane text COLLATE "C",
    weight integer,
    expires_at bigint,
    schedule text COLLATE "C",
    tick bigint,
    ordered smallint,
    created_at bigint NOT NULL
);
-- A chain's later jobs, and one successor per job; the first job has the chain's own id.
CREATE UNIQUE INDEX {prefix}job_chain ON {job} (chain_id, position) WHERE position > 0;
-- Lists by queue, by task, or both: walked group by group.
CREATE INDEX {prefix}job_strip ON {job} (queue, task, id);
CREATE INDEX {prefix}job_label ON {job} (label, id) WHERE label IS NOT NULL;
CREATE INDEX {prefix}job_key ON {job} (key, id) WHERE key IS NOT NULL;
CREATE INDEX {prefix}job_schedule ON {job} (schedule, id) WHERE schedule IS NOT NULL;

-- One narrow row per open job; every transition is one UPDATE. A state is part of the indexes below,
-- so in a query it is a literal: a parameter under a generic plan could use none of them.
-- state: 0 pending, 1 scheduled, 2 blocked, 3 running, 4 set aside: parked, or in its lane
-- parked_for: why it is parked, which brings it back: task:NAME waits for a worker that knows the task.
-- lane, weight: as in {job}; a job that has a lane waits there, and is pending for people. NULL for all others.
-- run_at: from when on it could begin: its time, the end of its last blocker, or its return.
-- worker: who has claimed it. started_at: NULL while a job that was claimed ahead has not begun.
-- Rows live for seconds, so vacuum comes by a fixed number of dead ones and does not rest.
CREATE TABLE {live} (
    job_id bigint PRIMARY KEY,
    state smallint NOT NULL CHECK (state BETWEEN 0 AND 4),
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    used integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    open_blockers integer NOT NULL DEFAULT 0 CHECK (open_blockers >= 0),
    run_at bigint NOT NULL,
    claimed_at bigint,
    started_at bigint,
    worker bigint,
    progress double precision,
    progress_text text,
    parked_for text COLLATE "C",
    lane text COLLATE "C",
    weight integer
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX {prefix}live_pending ON {live} (queue, priority DESC, job_id) WHERE state = 0;
CREATE INDEX {prefix}live_due ON {live} (run_at) WHERE state = 1;
CREATE INDEX {prefix}live_waiting ON {live} (state, queue, priority DESC, job_id) WHERE state IN (1, 2, 4);
CREATE INDEX {prefix}live_running ON {live} (worker, job_id) WHERE state = 3;
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
    job_id bigint NOT NULL,
    number integer NOT NULL,
    outcome smallint NOT NULL CHECK (outcome BETWEEN 1 AND 8),
    final smallint CHECK (final = 1),
    worker text,
    started_at bigint,
    ended_at bigint NOT NULL,
    output text,
    error text,
    error_type text,
    progress double precision,
    progress_text text,
    blocker bigint,
    continued_by bigint,
    ended_by text,
    run_at bigint,
    PRIMARY KEY (job_id, number)
);
-- Lists of failed and cancelled jobs.
CREATE INDEX {prefix}attempt_bad ON {attempt} (job_id) WHERE final = 1 AND outcome NOT IN (1, 2);

-- One row per chain, updated once, when it ends. state: 0 open, 1 completed, 2 failed, 3 cancelled
-- What waits for a chain locks this row. The state is in no index, so that the update of a success
-- can stay on its page (bad says what an index needs to know); there is room for all rows of a page, since
-- those that were stored together end together.
CREATE TABLE {chain} (
    id bigint PRIMARY KEY,
    task text COLLATE "C" NOT NULL,
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),
    bad boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL,
    ended_at bigint,
    trace text
) WITH (fillfactor = 45);
CREATE INDEX {prefix}chain_bad ON {chain} (id) WHERE bad;

-- Which chain has a key. One upsert decides; the row is replaced when its chain is out of scope.
CREATE TABLE {key} (
    task text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    chain_id bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (task, key)
) WITH (fillfactor = 85);

-- An edge: the job waits for the chain. Deleted with either of them. position: as declared; below 0, it is not.
-- in_line: 1, that chain had the job's key before.
CREATE TABLE {blocker} (
    chain_id bigint NOT NULL,
    job_id bigint NOT NULL,
    position integer NOT NULL,
    name text,
    trace text,
    in_line smallint,
    PRIMARY KEY (chain_id, job_id)
);
CREATE UNIQUE INDEX {prefix}blocker_job ON {blocker} (job_id, position);

-- A running worker; its one lease covers everything it holds. declares: a hash of all that its code declares.
CREATE TABLE {worker} (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    birth text,
    version text NOT NULL,
    queues text NOT NULL,
    concurrency integer NOT NULL,
    started_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    declares text
) WITH (fillfactor = 50);

-- A queue has a row only while it is paused; '*' is every queue.
CREATE TABLE {queue} (
    name text COLLATE "C" PRIMARY KEY,
    paused_at bigint NOT NULL,
    paused_by text
);

-- A schedule: when to store which job, again and again. It has either cron, an expression, or every.
-- template: the call, as JSON. declared: what code has last said of it, as a hash, NULL if it was made at run
-- time; declared_in: all that was declared beside it. next_at: NULL when there is no tick any more.
-- last_chain: the chain of the newest job, for overlap. ticks have got a job, skipped and missed have not.
CREATE TABLE {schedule} (
    name text COLLATE "C" PRIMARY KEY,
    task text COLLATE "C" NOT NULL,
    template text NOT NULL,
    cron text,
    every bigint,
    tz text NOT NULL,
    start_at bigint,
    end_at bigint,
    jitter bigint NOT NULL,
    catch_up integer NOT NULL,
    overlap text NOT NULL,
    declared text,
    declared_in text COLLATE "C",
    paused_at bigint,
    paused_by text,
    next_at bigint,
    last_tick bigint,
    last_chain bigint,
    ticks bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    missed bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE INDEX {prefix}schedule_next ON {schedule} (task, next_at) WHERE paused_at IS NULL AND next_at IS NOT NULL;
CREATE INDEX {prefix}schedule_task ON {schedule} (task, name);
CREATE INDEX {prefix}schedule_declared ON {schedule} (task, declared_in) WHERE declared IS NOT NULL;

-- What may run and begin. lane: '' is the queue itself, whose row is also its gate: who holds it may claim under the
-- limits of the queue and of its lanes; '*' is each lane, else one lane, instead of '*'. NULL: no limit of that kind.
-- per: microseconds. spent: what began in the last window, as pairs (end of a slot, weight) in JSON; opens_at: when the
-- rate lets the next begin; turn: the last served_at that was given to a lane, which only grows. These are the queue's.
-- collected: the lane up to which notes were collected last.
-- declared: what the code said of it last, as JSON; NULL where a person did. declared_in: all that was declared beside it.
CREATE TABLE {limit} (
    queue text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    concurrency integer CHECK (concurrency >= 0),
    rate integer CHECK (rate > 0),
    per bigint CHECK (per > 0),
    spent text,
    opens_at bigint,
    turn bigint NOT NULL DEFAULT 0,
    collected text COLLATE "C",
    declared text,
    declared_in text COLLATE "C",
    changed_at bigint,
    changed_by text,
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX {prefix}limit_declared ON {limit} (queue, declared_in) WHERE declared IS NOT NULL;

-- A lane of a queue: its jobs take turns with those of others. The row is here while one of them waits or ran lately.
-- closed: 0 open, 1 full, 2 until opens_at (by its rate, or a handler asked for it), 3 empty, kept for what it has spent.
-- priority: of its first job, or of one that was there. served_at: when it had its last turn, or was filled.
CREATE TABLE {lane} (
    queue text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    closed smallint NOT NULL CHECK (closed BETWEEN 0 AND 3),
    priority integer NOT NULL,
    served_at bigint NOT NULL,
    opens_at bigint,
    spent text,
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX {prefix}lane_open ON {lane} (queue, priority DESC, served_at) WHERE closed = 0;
CREATE INDEX {prefix}lane_opens ON {lane} (queue, opens_at) WHERE closed > 0;

-- That a lane is worth a look: something waits in it (priority), a slot of it came free (free), or it is to rest (until).
-- Whoever changes something writes a row of his own and waits for nobody; who holds the gate of the queue collects them.
CREATE TABLE {note} (
    id bigint GENERATED ALWAYS AS IDENTITY,
    queue text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    priority integer,
    free smallint,
    until bigint,
    PRIMARY KEY (queue, lane, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What people did, where a name was given: who, what, and to how many. Read newest first.
-- number: NULL where another line counts the job, as one of many. chosen: what an action on many was about,
-- as JSON. A line goes with its job; one without a job with the age of history.
CREATE TABLE {audit} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    done_by text NOT NULL,
    action text NOT NULL,
    job_id bigint,
    queue text COLLATE "C",
    number integer,
    chosen text
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
    minute bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    outcome smallint NOT NULL,
    slot bigint NOT NULL,
    ended bigint NOT NULL,
    removed bigint NOT NULL,
    duration bigint NOT NULL,
    h0 bigint NOT NULL, h1 bigint NOT NULL, h2 bigint NOT NULL, h3 bigint NOT NULL,
    h4 bigint NOT NULL, h5 bigint NOT NULL, h6 bigint NOT NULL, h7 bigint NOT NULL,
    waited bigint NOT NULL,
    w0 bigint NOT NULL, w1 bigint NOT NULL, w2 bigint NOT NULL, w3 bigint NOT NULL,
    w4 bigint NOT NULL, w5 bigint NOT NULL, w6 bigint NOT NULL, w7 bigint NOT NULL,
    PRIMARY KEY (minute, queue, task, outcome, slot)
) WITH (fillfactor = 50);

-- Remembered positions: where retention stopped.
CREATE TABLE {mark} (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);
-- Whoever prunes holds this row; it is here from the start, so that nobody waits to make it.
INSERT INTO {mark} (name, value) VALUES ('prune', 0);

-- Applied migrations.
CREATE TABLE {migration} (
    name text COLLATE "C" PRIMARY KEY,
    applied_at bigint NOT NULL
);

-- Jobs for people: states in words, times as such, the running attempt.
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
       to_timestamp(j.created_at / 1000000.0) AS created_at,
       to_timestamp(l.run_at / 1000000.0) AS run_at,
       to_timestamp(coalesce(l.started_at, a.started_at) / 1000000.0) AS started_at,
       CASE WHEN l.job_id IS NULL THEN to_timestamp(a.ended_at / 1000000.0) END AS ended_at,
       to_timestamp(greatest(j.created_at, l.claimed_at, l.started_at, a.ended_at,
                             CASE WHEN l.state = 0 THEN l.run_at END) / 1000000.0) AS changed_at,
       coalesce(w.name, a.worker) AS worker,
       coalesce(l.progress, a.progress) AS progress,
       coalesce(l.progress_text, a.progress_text) AS progress_text,
       j.arguments,
       CASE WHEN l.job_id IS NULL THEN a.output END AS output,
       a.error, a.continued_by, a.ended_by
  FROM {job} AS j
  LEFT JOIN {live} AS l ON l.job_id = j.id
  LEFT JOIN LATERAL (SELECT * FROM {attempt} AS m WHERE m.job_id = j.id ORDER BY m.number DESC LIMIT 1) AS a ON true
  LEFT JOIN {worker} AS w ON w.id = l.worker;

-- Attempts for people: the ended ones and those running now.
CREATE VIEW {attempts} AS
SELECT a.job_id, a.number,
       CASE a.outcome WHEN 1 THEN 'completed' WHEN 2 THEN 'continued' WHEN 3 THEN 'failed' WHEN 4 THEN 'timeout'
            WHEN 5 THEN 'snoozed' WHEN 6 THEN 'cancelled' WHEN 7 THEN 'lost' ELSE 'released' END AS outcome,
       a.final, a.worker, a.ended_by,
       to_timestamp(a.started_at / 1000000.0) AS started_at,
       to_timestamp(a.ended_at / 1000000.0) AS ended_at,
       a.output, a.error, a.error_type, a.progress, a.progress_text
  FROM {attempt} AS a
UNION ALL
SELECT l.job_id, l.attempt, 'running', NULL, w.name, NULL,
       to_timestamp(l.started_at / 1000000.0), NULL,
       NULL, NULL, NULL, l.progress, l.progress_text
  FROM {live} AS l LEFT JOIN {worker} AS w ON w.id = l.worker
 WHERE l.state = 3 AND l.started_at IS NOT NULL;

-- Chains for people.
CREATE VIEW {chains} AS
SELECT c.id, c.task, j.label, j.key,
       CASE c.state WHEN 0 THEN 'open' WHEN 1 THEN 'completed' WHEN 2 THEN 'failed' ELSE 'cancelled' END AS state,
       to_timestamp(c.created_at / 1000000.0) AS created_at,
       to_timestamp(c.ended_at / 1000000.0) AS ended_at
  FROM {chain} AS c JOIN {job} AS j ON j.id = c.id;
