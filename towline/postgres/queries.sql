-- Every statement of the PostgreSQL engine. Its SQLite brother has the same names in the same order, so
-- that a diff of the two is the document of the dialects; what only this engine needs stands at the end.
-- A statement over many rows takes them as one JSON parameter, :rows, and names the columns it reads.
-- Where the store wants to know what each row changed, they carry their number n, and the statement
-- returns the numbers of those that passed.
--
-- Many transactions write at once (READ COMMITTED). What keeps them apart:
--   * A row is locked before anything is read that the operation acts on, and read by a later statement:
--     a statement sees the database as it was when it began, not as it is once it got its locks.
--   * So whoever ends, opens or deletes a chain needs READ COMMITTED: with one snapshot for all statements he
--     would miss the edge of somebody who committed before he got the lock, and nothing would tell him, since
--     a shared lock leaves no new version of the row. The statements that take such chains say the level.
--   * Whoever waits takes rows in the order of their ids, a chain's row before its jobs' rows in {live}.
--   * A worker never waits: what it would need and somebody holds is left for its next turn. {wait} makes
--     two statements of one: it waits, or, named _now, passes over (SKIP LOCKED).
--   * A state of {live} is a literal, so that every plan can use the partial indexes; {state} makes a
--     statement for each. Where rows are addressed by their ids the test says state::integer, which fits
--     none of them: before the first ANALYZE the planner would walk all rows of a state instead.
--   * A list of ids is an array, and a row is looked up by a LATERAL sub-select that locks it or ends in
--     OFFSET 0, where a join would do: then each is found by its index, and nothing the planner believes
--     about the tables (100 rows in any JSON, the fill when the statement was prepared) makes it walk one.

-- Columns that go together are named once, here: {stored} is the list, {j.stored} the same of table j,
-- {stored typed} the same with their types, as records have them, {:stored typed} a parameter for each.
--
-- columns: stored = id bigint, chain_id bigint, position integer, task text, label text, queue text,
--     priority integer, max_attempts integer, timeout bigint, key text, blockers integer, policy smallint,
--     arguments text, trace text, lane text, weight integer, expires_at bigint, schedule text, tick bigint,
--     ordered smallint, created_at bigint
-- columns: said = task text, label text, queue text, priority integer, max_attempts integer, timeout bigint
-- columns: claimed = max_attempts, timeout, key, label, blockers, trace, lane, weight, expires_at, tick, created_at
-- columns: opened = state smallint, queue text, priority integer, job_id bigint, attempt integer,
--     open_blockers integer, run_at bigint, lane text, weight integer
-- columns: standing = state, attempt, used, lost, open_blockers, run_at, started_at, progress,
--     progress_text
-- columns: tried = job_id, number, outcome, final, worker, started_at, ended_at, output, error, error_type,
--     progress, progress_text
-- columns: registered = id, name, host, pid, birth, version, queues, concurrency, started_at, seen_at,
--     lease_until, declares
-- columns: planned = name text, task text, template text, cron text, every bigint, tz text, start_at bigint,
--     end_at bigint, jitter bigint, catch_up integer, overlap text, declared text, declared_in text,
--     next_at bigint
-- columns: since = paused_at, paused_by, last_tick, last_chain, ticks, skipped, missed
-- columns: noted = id, at, done_by, action, job_id, queue, number, chosen
-- columns: counter = minute bigint, queue text, task text, outcome smallint, slot bigint
-- columns: counted = ended bigint, removed bigint, duration bigint, h0 bigint, h1 bigint, h2 bigint,
--     h3 bigint, h4 bigint, h5 bigint, h6 bigint, h7 bigint, waited bigint, w0 bigint, w1 bigint, w2 bigint,
--     w3 bigint, w4 bigint, w5 bigint, w6 bigint, w7 bigint

-- ---------------------------------------------------------------- write

-- name: next_job_id
-- Ids for new jobs, one by one from the sequence: never given out again, in the order of asking.
SELECT nextval('{job_ids}') FROM generate_series(1, :number::integer);

-- name: chain_states
-- State and age of the chains somebody wants to wait for, kept as they are until the commit: whoever ends
-- one comes before us and is seen, or after us and sees our edge.
SELECT c.id, c.state, c.created_at
  FROM {chain} AS c
 WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
 ORDER BY c.id
   FOR SHARE OF c;

-- name: take_key
-- Give the key to a new chain, unless one in scope has it: an open chain always is, an ended one until
-- it is older than :expired (no limit for scope "open"). The upsert decides, in the order of the keys; a
-- key that is plainly taken is not touched, since even a conflict that changes nothing locks its row.
WITH r AS (
    SELECT * FROM json_to_recordset(:rows::text::json)
        AS r(n integer, task text, key text, chain_id bigint, now bigint, expired bigint)
), won AS (
    INSERT INTO {key} AS k (task, key, chain_id, created_at)
    SELECT r.task, r.key, r.chain_id, r.now
      FROM r LEFT JOIN LATERAL (
           SELECT o.task, o.created_at, o.ended_at
             FROM {key} AS o WHERE o.task = r.task AND o.key = r.key OFFSET 0) AS o ON true
     WHERE o.task IS NULL OR (o.ended_at IS NOT NULL AND o.created_at <= r.expired)
     ORDER BY r.task COLLATE "C", r.key COLLATE "C"
    ON CONFLICT (task, key) DO UPDATE
       SET chain_id = excluded.chain_id, created_at = excluded.created_at, ended_at = NULL
     WHERE k.ended_at IS NOT NULL
       AND k.created_at <= (SELECT r.expired FROM r WHERE r.chain_id = excluded.chain_id)
    RETURNING k.chain_id
)
SELECT r.n FROM r JOIN won ON won.chain_id = r.chain_id;

-- name: read_key
-- Who has the key; the chain stays until the commit, though it may end.
SELECT k.chain_id
  FROM {key} AS k
 CROSS JOIN LATERAL (SELECT 1 FROM {chain} AS c WHERE c.id = k.chain_id FOR KEY SHARE) AS c
 WHERE k.task = :task AND k.key = :key;

-- name: pass_key
-- Give the key from the chain that has it to one behind it. None changed: it is another's by now. Who comes
-- between is waited for, and then the key is not his to take from: nothing is held in that case. One key at a
-- time, and the planner is told so: for a hundred it would read the table.
UPDATE {key} AS k SET chain_id = r.chain_id, created_at = r.now, ended_at = NULL
  FROM (SELECT * FROM json_to_recordset(:rows::text::json)
                   AS r(n integer, chain_id bigint, now bigint, task text, key text, was bigint) LIMIT 1) AS r
 WHERE k.task = r.task AND k.key = r.key AND k.chain_id = r.was
RETURNING r.n;

-- name: next_in_line
-- The jobs that stand behind a chain in the line of its key. Rides the primary key of blocker.
SELECT job_id FROM {blocker} WHERE chain_id = :chain_id AND in_line = 1;

-- name: move_in_line
-- A chain leaves the line: a job behind it waits for the one before it. Whoever moves it shares the one chain
-- and holds the other.
UPDATE {blocker} SET chain_id = :chain_id WHERE chain_id = :was AND job_id = :job_id;

-- name: mark_in_line
-- The same where an edge cannot be moved: one that says so, and one that does no longer.
UPDATE {blocker} SET in_line = :in_line WHERE chain_id = :chain_id AND job_id = :job_id;

-- name: insert_chains
INSERT INTO {chain} (id, task, created_at, trace)
SELECT id, task, created_at, trace
  FROM json_to_recordset(:rows::text::json) AS r(id bigint, task text, created_at bigint, trace text);

-- name: insert_jobs
INSERT INTO {job} ({stored})
SELECT {stored}
  FROM json_to_recordset(:rows::text::json) AS r({stored typed});

-- name: insert_live
INSERT INTO {live} ({opened})
SELECT {opened}
  FROM json_to_recordset(:rows::text::json) AS r({opened typed});

-- name: insert_blockers
INSERT INTO {blocker} (chain_id, job_id, position, name, trace, in_line)
SELECT chain_id, job_id, position, name, trace, in_line
  FROM json_to_recordset(:rows::text::json)
    AS r(chain_id bigint, job_id bigint, position integer, name text, trace text, in_line smallint);

-- name: find_upstream
-- These chains, and all that they wait for in turn. Follows the last job of each chain while it is
-- blocked, or, when a chain is opened again (:reopened), while it may be blocked again; rides job_chain,
-- the key of live and blocker_job. (Of an array the planner expects ten values, of a function a hundred, and
-- for so many it would have the statement compiled.)
WITH RECURSIVE up(chain_id) AS (
    SELECT unnest(ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
    UNION
    SELECT b.chain_id
      FROM up
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT k.id FROM {job} AS k
                             WHERE k.chain_id = up.chain_id AND k.position > 0
                             ORDER BY k.position DESC LIMIT 1), up.chain_id) AS id) AS t
     CROSS JOIN LATERAL (SELECT b.chain_id FROM {blocker} AS b WHERE b.job_id = t.id OFFSET 0) AS b
     WHERE EXISTS (SELECT 1 FROM {live} AS l
                    WHERE l.job_id = t.id
                      AND (l.state::integer = 2 OR (:reopened::integer = 1 AND l.state::integer <> 3))
                   OFFSET 0)
)
SELECT chain_id FROM up;

-- name: change_job
-- The one update of a job's row: on_conflict="replace" before the first start, or a change by hand.
UPDATE {job} SET {stored set} WHERE id = :id;

-- name: change_waiting
-- The same of its row in live, and its time.
UPDATE {live} SET state = :state, run_at = :run_at, open_blockers = :open_blockers, queue = :to_queue,
       priority = :to_priority, lane = :lane, weight = :weight, parked_for = NULL
 WHERE job_id = :job_id AND state = :was AND queue = :queue AND priority = :priority;

-- name: move_waiting
-- A job that is not running changes its state or its time.
UPDATE {live} SET state = :state, run_at = :run_at, open_blockers = :open_blockers, parked_for = NULL
 WHERE job_id = :job_id AND state = :was AND queue = :queue AND priority = :priority;

-- ---------------------------------------------------------------- worker

-- name: record_attempts
-- The fence of every ending: no row is written unless the job still runs under this attempt number and for
-- this worker (a database that lost its last commits gives a number out again), nor a second one for an
-- attempt that one turn was told of twice. Who ends a job from outside holds it and names no worker. What
-- never began says -1 for its start.
WITH r AS MATERIALIZED (
    SELECT DISTINCT ON (job_id, attempt, held_by) *
      FROM json_to_recordset(:rows::text::json)
        AS r(n integer, outcome smallint, final smallint, worker text, started_at bigint, now bigint,
             output text, error text, error_type text, continued_by bigint, ended_by text, job_id bigint,
             attempt integer, held_by bigint)
     ORDER BY job_id, attempt, held_by, n
), held AS MATERIALIZED (
    SELECT r.*, nullif(coalesce(r.started_at, l.started_at, l.claimed_at), -1) AS began, l.progress, l.progress_text
      FROM r
     CROSS JOIN LATERAL (
           SELECT l.started_at, l.claimed_at, l.progress, l.progress_text
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
), done AS (
    INSERT INTO {attempt} ({tried}, continued_by, ended_by)
    SELECT h.job_id, h.attempt, h.outcome, h.final, h.worker, h.began, h.now,
           h.output, h.error, h.error_type, h.progress, h.progress_text, h.continued_by, h.ended_by
      FROM held AS h
    ON CONFLICT (job_id, number) DO NOTHING
    RETURNING job_id
)
SELECT h.n FROM held AS h JOIN done ON done.job_id = h.job_id;

-- name: record_waiting_end
-- A job that ends without a run: the next number, no start. Fenced by the state it was seen in.
WITH held AS MATERIALIZED (
    SELECT r.*, l.attempt, l.run_at
      FROM (SELECT *
              FROM json_to_recordset(:rows::text::json)
                AS r(n integer, outcome smallint, now bigint, output text, error text, blocker bigint,
                     continued_by bigint, ended_by text, state smallint, job_id bigint)
             ORDER BY job_id) AS r
     CROSS JOIN LATERAL (
           SELECT l.attempt, l.run_at
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.state = r.state
              FOR UPDATE) AS l
), done AS (
    INSERT INTO {attempt} (job_id, number, outcome, final, started_at, ended_at, output, error, blocker,
                           continued_by, ended_by, run_at)
    SELECT h.job_id, h.attempt + 1, h.outcome, 1, NULL, h.now, h.output, h.error, h.blocker,
           h.continued_by, h.ended_by, h.run_at
      FROM held AS h
    RETURNING job_id
)
SELECT h.n FROM held AS h JOIN done ON done.job_id = h.job_id;

-- name: delete_live
-- The job is no longer open.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json) AS r(state smallint, job_id bigint)
)
DELETE FROM {live} AS l
 USING r
 WHERE l.job_id = ANY (ARRAY(SELECT r.job_id FROM r)) AND l.job_id = r.job_id AND l.state = r.state;

-- name: put_back
-- running → pending or scheduled. Fenced; the attempt number stays, so it is never given out again. What
-- has not begun goes on waiting: it keeps its run_at.
WITH held AS MATERIALIZED (
    SELECT r.*
      FROM (SELECT *
              FROM json_to_recordset(:rows::text::json)
                AS r(n integer, state smallint, run_at bigint, used integer, lost integer, job_id bigint,
                     attempt integer, held_by bigint)
             ORDER BY job_id) AS r
     CROSS JOIN LATERAL (
           SELECT 1
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
)
UPDATE {live} AS l
   SET state = h.state, run_at = coalesce(h.run_at, l.run_at), used = h.used, lost = h.lost, claimed_at = NULL,
       started_at = NULL, worker = NULL, progress = NULL, progress_text = NULL
  FROM held AS h
 WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND l.job_id = h.job_id
RETURNING h.n;

-- name: park_jobs
-- running → parked, for a reason such as task:NAME, which the worker does not know. Fenced.
WITH held AS MATERIALIZED (
    SELECT r.*
      FROM (SELECT *
              FROM json_to_recordset(:rows::text::json)
                AS r(n integer, parked_for text, job_id bigint, attempt integer, held_by bigint)
             ORDER BY job_id) AS r
     CROSS JOIN LATERAL (
           SELECT 1
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
)
UPDATE {live} AS l
   SET state = 4, parked_for = h.parked_for, claimed_at = NULL, started_at = NULL, worker = NULL
  FROM held AS h
 WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND l.job_id = h.job_id
RETURNING h.n;

-- name: find_parked
-- Parked jobs whose reason is gone, in queues a worker serves. Rides live_parked.
SELECT x.queue, x.priority, x.job_id, x.lane
  FROM json_array_elements_text(:reasons::text::json) AS t
 CROSS JOIN json_array_elements_text(:queues::text::json) AS q
 CROSS JOIN LATERAL (
       SELECT l.queue, l.priority, l.job_id, l.lane
         FROM {live} AS l
        WHERE l.state = 4 AND l.parked_for = t.value AND l.queue = q.value
        LIMIT :limit::integer
          FOR UPDATE SKIP LOCKED) AS x
 LIMIT :limit::integer;

-- name: unpark_jobs
-- Pending again, or back in its lane.
UPDATE {live} SET state = CASE WHEN lane IS NULL THEN 0 ELSE 4 END, parked_for = NULL
 WHERE job_id = ANY (ARRAY(SELECT r.job_id FROM json_to_recordset(:rows::text::json) AS r(job_id bigint)))
   AND state::integer = 4;

-- name: next_due
-- When the next scheduled job is due (rides live_due); and which of these queues have a gate, lanes or notes, which is
-- three probes for each. Named next_due_above, it begins there.
SELECT min(run_at),
       (SELECT coalesce(json_agg(q.value), '[]')::text
          FROM json_array_elements_text(:queues::text::json) AS q
         WHERE EXISTS (SELECT 1 FROM {limit} AS g
                        WHERE g.queue = q.value AND g.lane = ''
                          AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL) OFFSET 0)
            OR (SELECT n.lane FROM {lane} AS n WHERE n.queue = q.value ORDER BY n.lane LIMIT 1) IS NOT NULL
            OR (SELECT n.lane FROM {note} AS n WHERE n.queue = q.value ORDER BY n.lane LIMIT 1) IS NOT NULL)
  FROM {live} WHERE state = 1
  -- above: AND run_at >= :since
;

-- name: peek_pending
-- How many pending jobs the queues have that are neither paused nor limited, no more than :most of each are
-- counted; whether a job is parked for one of these reasons, which is one probe where none is; and when the next tick
-- of these tasks is, which is one as well. Rides live_parked and schedule_next. Named peek_pending_above, it
-- begins where claim_pending_above does.
SELECT count(*),
       (EXISTS (SELECT 1 FROM {live} AS p WHERE p.state = 4 OFFSET 0)
        AND EXISTS (SELECT 1
                      FROM json_array_elements_text(:reasons::text::json) AS t
                     CROSS JOIN json_to_recordset(:queues::text::json) AS r(value text)
                     CROSS JOIN LATERAL (SELECT 1 FROM {live} AS p
                                          WHERE p.state = 4 AND p.parked_for = t.value
                                            AND p.queue = r.value LIMIT 1) AS p))::integer,
       CASE WHEN EXISTS (SELECT 1 FROM {schedule} AS s OFFSET 0)
            THEN (SELECT min(s.next_at)
                    FROM json_array_elements_text(:tasks::text::json) AS t
                   CROSS JOIN LATERAL (SELECT s.next_at FROM {schedule} AS s
                                        WHERE s.task = t.value AND s.paused_at IS NULL AND s.next_at IS NOT NULL
                                        ORDER BY s.next_at LIMIT 1) AS s) END
  FROM json_to_recordset(:queues::text::json) AS q(value text, priority integer, head bigint)
 CROSS JOIN LATERAL (
       SELECT 1 FROM {live} AS l
        WHERE l.state = 0 AND l.queue = q.value
        -- above: AND l.priority = q.priority AND l.job_id >= q.head
        LIMIT :most::integer) AS x
 WHERE q.value NOT IN (SELECT p.name FROM {queue} AS p)
   AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*')
   AND q.value NOT IN (SELECT g.queue FROM {limit} AS g
                        WHERE g.lane = '' AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL));

-- name: find_gates
-- Which of these queues have a limit of their own, lanes or notes: a worker claims from them in another way. Three probes
-- each.
SELECT q.value
  FROM json_array_elements_text(:queues::text::json) AS q
 WHERE EXISTS (SELECT 1 FROM {limit} AS g
                WHERE g.queue = q.value AND g.lane = ''
                  AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL) OFFSET 0)
    OR (SELECT n.lane FROM {lane} AS n WHERE n.queue = q.value ORDER BY n.lane LIMIT 1) IS NOT NULL
    OR (SELECT n.lane FROM {note} AS n WHERE n.queue = q.value ORDER BY n.lane LIMIT 1) IS NOT NULL;

-- name: peek_gates
-- How much a look at these queues would find, no more than :most of each kind are counted: open lanes and notes, and jobs
-- outside of lanes where the queue is limited; nothing but notes where the limit is reached. And whether a limit keeps something
-- waiting that will begin by itself.
SELECT coalesce(sum(CASE WHEN x.shut THEN 0 ELSE x.lanes + x.plain END + x.notes), 0)::bigint,
       coalesce(bool_or((x.shut AND x.concurrency IS DISTINCT FROM 0 AND x.lanes + x.plain > 0) OR x.resting),
                false)::integer
  FROM (SELECT g.concurrency,
               coalesce(g.opens_at > :now::bigint, false)
               OR (g.concurrency IS NOT NULL
                   AND (SELECT coalesce(sum(coalesce(r.weight, 1)), 0)
                          FROM (SELECT queue, weight FROM {live} WHERE state = 3 OFFSET 0) AS r
                         WHERE r.queue = q.value) >= g.concurrency) AS shut,
               (SELECT count(*) FROM (SELECT 1 FROM {lane} AS n WHERE n.closed = 0 AND n.queue = q.value
                                       ORDER BY n.priority DESC, n.served_at LIMIT :most::bigint) AS n) AS lanes,
               CASE WHEN g.concurrency IS NULL AND g.rate IS NULL THEN 0
                    ELSE (SELECT count(*) FROM (SELECT 1 FROM {live} AS l WHERE l.state = 0 AND l.queue = q.value
                                                 LIMIT :most::bigint) AS l) END AS plain,
               (SELECT count(*) FROM (SELECT 1 FROM {note} AS n WHERE n.queue = q.value
                                       ORDER BY n.lane LIMIT :most::bigint) AS n) AS notes,
               EXISTS (SELECT 1 FROM {lane} AS n
                        WHERE n.closed > 0 AND n.queue = q.value AND n.opens_at > 0 AND n.closed < 3 OFFSET 0) AS resting
          FROM json_array_elements_text(:queues::text::json) AS q
          LEFT JOIN LATERAL (SELECT g.concurrency, g.rate, g.opens_at FROM {limit} AS g
                              WHERE g.queue = q.value AND g.lane = '' OFFSET 0) AS g ON true
         WHERE q.value NOT IN (SELECT p.name FROM {queue} AS p)
   AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*')) AS x;

-- name: next_open
-- When a lane of these queues opens, or a queue's rate lets the next job begin. Rides lane_opens.
SELECT min(least(n.opens_at, g.opens_at))
  FROM json_array_elements_text(:queues::text::json) AS q
  LEFT JOIN LATERAL (SELECT n.opens_at FROM {lane} AS n
                      WHERE n.closed > 0 AND n.queue = q.value AND n.opens_at > 0
                      ORDER BY n.opens_at LIMIT 1) AS n ON true
  LEFT JOIN LATERAL (SELECT g.opens_at FROM {limit} AS g
                      WHERE g.queue = q.value AND g.lane = '' AND g.opens_at > :now OFFSET 0) AS g ON true
 WHERE q.value NOT IN (SELECT p.name FROM {queue} AS p)
   AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*');

-- name: next_priorities
-- The priorities of the next pending jobs of queues without a limit: what takes turns with lanes and limited queues.
SELECT c.priority
  FROM json_array_elements_text(:queues::text::json) AS q
 CROSS JOIN LATERAL (
       SELECT l.priority, l.job_id FROM {live} AS l
        WHERE l.state = 0 AND l.queue = q.value
        ORDER BY l.priority DESC, l.job_id LIMIT :room::bigint) AS c
 WHERE q.value NOT IN (SELECT p.name FROM {queue} AS p)
   AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*')
   AND q.value NOT IN (SELECT g.queue FROM {limit} AS g
                        WHERE g.lane = '' AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL))
 ORDER BY c.priority DESC, c.job_id
 LIMIT :room::bigint;

-- name: read_gates
-- All that decides who begins next in these queues, in one look, which is a statement of its own once their gates are held and
-- their notes collected: it sees what every holder before has claimed. Their limits, what runs by lane (the running
-- rows), the first open lanes (lane_open) with their first jobs (live_lane), about twice as many in all as there is
-- room for, and, where the queue is limited, the next jobs outside of lanes. Last of a lane, whether it is to rest by
-- a note that was not collected yet. A paused queue is left out. The time first: it is read once the gates are held, so
-- it is never earlier than that of a holder before, whose starts it is compared with.
WITH c AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
)
SELECT c.now, q.queue, g.concurrency, g.rate, g.per, g.spent, coalesce(g.turn, 0), e.concurrency, e.rate, e.per,
       r.running::text, o.lanes::text, p.plain::text
  FROM c
 CROSS JOIN (SELECT value AS queue FROM json_array_elements_text(:queues::text::json)
              WHERE value NOT IN (SELECT p.name FROM {queue} AS p)
                AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*')) AS q
  LEFT JOIN LATERAL (SELECT g.concurrency, g.rate, g.per, g.spent, g.turn FROM {limit} AS g
                      WHERE g.queue = q.queue AND g.lane = '' OFFSET 0) AS g ON true
  LEFT JOIN LATERAL (SELECT e.concurrency, e.rate, e.per FROM {limit} AS e
                      WHERE e.queue = q.queue AND e.lane = '*' OFFSET 0) AS e ON true
 CROSS JOIN LATERAL (
       SELECT json_agg(json_build_array(r.lane, r.weight)) AS running
         FROM (SELECT l.lane, sum(coalesce(l.weight, 1)) AS weight
                 FROM (SELECT queue, lane, weight FROM {live} WHERE state = 3 OFFSET 0) AS l
                WHERE l.queue = q.queue GROUP BY l.lane) AS r) AS r
 CROSS JOIN LATERAL (
       SELECT json_agg(json_build_array(n.lane, n.priority, n.served_at, n.spent, w.concurrency IS NOT NULL OR w.rate IS NOT NULL,
                                        w.concurrency, w.rate, w.per, f.jobs, x.rests)) AS lanes
         FROM (SELECT n.lane, n.priority, n.served_at, n.spent, 2 * :room::bigint / count(*) OVER () + 2 AS each
                 FROM (SELECT n.lane, n.priority, n.served_at, n.spent FROM {lane} AS n
                        WHERE n.closed = 0 AND n.queue = q.queue
                        ORDER BY n.priority DESC, n.served_at LIMIT :room::bigint) AS n) AS n
         LEFT JOIN LATERAL (SELECT w.lane, w.concurrency, w.rate, w.per FROM {limit} AS w
                             WHERE w.queue = q.queue AND w.lane = n.lane OFFSET 0) AS w ON true
        CROSS JOIN LATERAL (
              SELECT coalesce(json_agg(json_build_array(l.job_id, l.priority, l.weight)), '[]') AS jobs
                FROM (SELECT l.job_id, l.priority, coalesce(l.weight, 1) AS weight FROM {live} AS l
                       WHERE l.state = 4 AND l.queue = q.queue AND l.lane = n.lane AND l.parked_for IS NULL
                       ORDER BY l.priority DESC, l.job_id LIMIT n.each) AS l) AS f
        CROSS JOIN LATERAL (
              SELECT EXISTS (SELECT 1 FROM {note} AS x WHERE x.queue = q.queue AND x.lane = n.lane
                                AND x.until > c.now OFFSET 0) AS rests) AS x) AS o
  LEFT JOIN LATERAL (
       SELECT json_agg(json_build_array(l.job_id, l.priority, l.weight)) AS plain
         FROM (SELECT l.job_id, l.priority, coalesce(l.weight, 1) AS weight FROM {live} AS l
                WHERE l.state = 0 AND l.queue = q.queue
                ORDER BY l.priority DESC, l.job_id LIMIT :room::bigint) AS l) AS p
    ON g.concurrency IS NOT NULL OR g.rate IS NOT NULL;

-- name: save_lanes
-- Lanes that were served, or can start nothing for now. Who writes them has their queue's gate.
WITH r AS MATERIALIZED (
    SELECT r.*, n.row
      FROM json_to_recordset(:rows::text::json)
        AS r(closed smallint, priority integer, served_at bigint, opens_at bigint, spent text, queue text, lane text)
     CROSS JOIN LATERAL (SELECT n.ctid AS row FROM {lane} AS n
                          WHERE n.queue = r.queue AND n.lane = r.lane OFFSET 0) AS n
)
UPDATE {lane} AS n
   SET closed = r.closed, priority = r.priority, served_at = r.served_at, opens_at = r.opens_at, spent = r.spent
  FROM r
 WHERE n.ctid = r.row;

-- name: drop_lanes
-- Lanes in which nothing waits, and that have nothing to remember.
DELETE FROM {lane}
 WHERE ctid = ANY (ARRAY(SELECT n.row
                           FROM json_to_recordset(:rows::text::json) AS r(queue text, lane text)
                          CROSS JOIN LATERAL (SELECT n.ctid AS row FROM {lane} AS n
                                               WHERE n.queue = r.queue AND n.lane = r.lane OFFSET 0) AS n));

-- name: save_gates
UPDATE {limit} AS g SET turn = r.turn, spent = r.spent, opens_at = r.opens_at
  FROM json_to_recordset(:rows::text::json) AS r(queue text, turn bigint, spent text, opens_at bigint)
 WHERE g.queue = r.queue AND g.lane = '';

-- name: find_orphans
-- Of the next jobs to claim, also the first of open lanes, rows that have lost their job: somebody deleted it by hand. Only those are
-- taken: the others may be claimed meanwhile.
WITH x AS MATERIALIZED (
    SELECT l.job_id
      FROM json_array_elements_text(:queues::text::json) AS q
     CROSS JOIN LATERAL (
           SELECT l.job_id
             FROM {live} AS l
            WHERE l.state = 0 AND l.queue = q.value
            ORDER BY l.priority DESC, l.job_id
            LIMIT :limit::integer) AS l
     WHERE NOT EXISTS (SELECT 1 FROM {job} AS j WHERE j.id = l.job_id OFFSET 0)
    UNION ALL
    SELECT l.job_id
      FROM json_array_elements_text(:queues::text::json) AS q
     CROSS JOIN LATERAL (SELECT n.queue, n.lane FROM {lane} AS n
                          WHERE n.closed = 0 AND n.queue = q.value LIMIT :limit::integer) AS n
     CROSS JOIN LATERAL (
           SELECT l.job_id
             FROM {live} AS l
            WHERE l.state = 4 AND l.queue = n.queue AND l.lane = n.lane AND l.parked_for IS NULL
            ORDER BY l.priority DESC, l.job_id LIMIT 1) AS l
     WHERE NOT EXISTS (SELECT 1 FROM {job} AS j WHERE j.id = l.job_id OFFSET 0)
)
SELECT l.state, l.queue, l.priority, l.job_id
  FROM x
 CROSS JOIN LATERAL (
       SELECT l.state, l.queue, l.priority, l.job_id
         FROM {live} AS l
        WHERE l.job_id = x.job_id AND l.state::integer IN (0, 4)
          FOR UPDATE SKIP LOCKED) AS l;

-- name: record_begins
-- Jobs that were claimed ahead and have begun. Fenced; a row that somebody holds is left alone.
WITH held AS MATERIALIZED (
    SELECT r.*
      FROM (SELECT *
              FROM json_to_recordset(:rows::text::json)
                AS r(started_at bigint, job_id bigint, attempt integer, held_by bigint)
             ORDER BY job_id) AS r
     CROSS JOIN LATERAL (
           SELECT 1
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
)
UPDATE {live} AS l SET started_at = h.started_at
  FROM held AS h
 WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND l.job_id = h.job_id;

-- name: record_progress
-- Fenced like an ending. A row that somebody holds is left alone, but it is still the worker's.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json)
        AS r(n integer, progress double precision, text text, job_id bigint, attempt integer,
             held_by bigint)
     ORDER BY job_id
), held AS MATERIALIZED (
    SELECT r.*
      FROM r
     CROSS JOIN LATERAL (
           SELECT 1
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
), done AS (
    UPDATE {live} AS l SET progress = h.progress, progress_text = h.text
      FROM held AS h
     WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND l.job_id = h.job_id
)
SELECT r.n
  FROM r
 CROSS JOIN LATERAL (
       SELECT 1
         FROM {live} AS l
        WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
          AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
       OFFSET 0) AS l;

-- name: end_chains
-- Whoever ends a chain holds it.
-- A chain ends once.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json) AS r(state smallint, now bigint, id bigint)
)
UPDATE {chain} AS c SET state = r.state, bad = r.state <> 1, ended_at = r.now
  FROM r
 WHERE c.id = ANY (ARRAY(SELECT r.id FROM r)) AND c.id = r.id AND c.state = 0;

-- name: end_keys
-- A key belongs to the task of the chain's first job.
WITH r AS MATERIALIZED (
    SELECT r.*, c.task
      FROM json_to_recordset(:rows::text::json) AS r(now bigint, chain_id bigint, key text)
     CROSS JOIN LATERAL (SELECT c.task FROM {chain} AS c WHERE c.id = r.chain_id OFFSET 0) AS c
)
UPDATE {key} AS k SET ended_at = r.now
  FROM r
 WHERE k.task = ANY (ARRAY(SELECT r.task FROM r)) AND k.key = ANY (ARRAY(SELECT r.key FROM r))
   AND k.task = r.task AND k.key = r.key AND k.chain_id = r.chain_id;

-- name: find_dependents
-- Jobs behind these chains, with the key of their live row. Rides the primary keys of blocker and job.
SELECT b.chain_id, b.job_id, j.chain_id, j.queue, j.priority, j.policy, j.task, j.key, b.name, j.lane
  FROM {blocker} AS b
 CROSS JOIN LATERAL (SELECT j.chain_id, j.queue, j.priority, j.policy, j.task, j.key, j.lane
                       FROM {job} AS j WHERE j.id = b.job_id OFFSET 0) AS j
 WHERE b.chain_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)));

-- name: unblock_jobs
-- A job waits for open_blockers chains; each end subtracts its share. At zero it is due, or scheduled
-- when its time has not come. Never "is any blocker left?". From now on it could begin, so run_at is no earlier.
-- Rows are taken in the order of their ids.
WITH held AS MATERIALIZED (
    SELECT r.*
      FROM (SELECT *
              FROM json_to_recordset(:rows::text::json) AS r(ended integer, now bigint, job_id bigint)
             ORDER BY job_id) AS r
     CROSS JOIN LATERAL (
           SELECT 1
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.state::integer = 2
              FOR UPDATE) AS l
)
UPDATE {live} AS l
   SET open_blockers = l.open_blockers - h.ended,
       state = CASE WHEN l.open_blockers > h.ended THEN 2 WHEN l.run_at > h.now THEN 1
                    WHEN l.lane IS NULL THEN 0 ELSE 4 END,
       run_at = CASE WHEN l.open_blockers > h.ended THEN l.run_at ELSE greatest(l.run_at, h.now) END
  FROM held AS h
 WHERE l.job_id = ANY (ARRAY(SELECT h.job_id FROM held AS h)) AND l.job_id = h.job_id
   AND l.state::integer = 2;

-- name: add_rollups
-- Ended jobs of this minute; one row per writer (slot), so that writers do not meet. Who is no worker
-- has the number of its connection for a slot.
INSERT INTO {rollup} AS t ({counter}, {counted})
SELECT minute, queue, task, outcome, CASE slot WHEN 0 THEN -1 - pg_backend_pid() ELSE slot END,
       {counted}
  FROM json_to_recordset(:rows::text::json)
    AS r({counter typed}, {counted typed})
 ORDER BY queue, task, outcome
ON CONFLICT ({counter}) DO UPDATE SET {counted added};

-- name: insert_worker
INSERT INTO {worker} ({registered})
VALUES (:id, :name, :host, :pid, :birth, :version, :queues, :concurrency, :now, :now, :lease_until, :declares);

-- name: resize_worker
-- How many attempts a worker runs at a time, for those who look at it.
UPDATE {worker} SET concurrency = :concurrency WHERE id = :id AND name = :name;

-- name: renew_worker
-- One row carries the lease of everything the worker holds.
WITH held AS MATERIALIZED (
    SELECT r.*
      FROM json_to_recordset(:rows::text::json)
        AS r(n integer, now bigint, lease_until bigint, id bigint, name text)
      JOIN {worker} AS w ON w.id = r.id AND w.name = r.name
       FOR UPDATE OF w SKIP LOCKED
)
UPDATE {worker} AS w SET seen_at = h.now, lease_until = h.lease_until
  FROM held AS h
 WHERE w.id = h.id
RETURNING h.n;

-- name: find_running_of
-- What runs in a worker's name. Rides live_running.
SELECT l.job_id, l.attempt, l.queue, l.priority, l.used, l.lost, l.lane
  FROM {live} AS l
 WHERE l.state = 3 AND l.worker = :worker;

-- ---------------------------------------------------------------- upkeep

-- name: find_expired_workers
SELECT id FROM {worker} WHERE lease_until <= :now;

-- name: find_lost
-- Running jobs of workers that are dead (:dead) or no longer registered. Walks the running rows only.
-- Last, whether the job itself is gone, deleted by hand; and its lane, by its own row.
SELECT l.job_id, l.attempt, l.queue, l.priority, j.chain_id, j.position, j.task, '', l.used, l.lost,
       {j.claimed}, l.run_at, l.claimed_at, l.worker, w.name, j.chain_id IS NULL, l.lane
  FROM (SELECT job_id, attempt, queue, priority, used, lost, run_at, claimed_at, worker, lane
          FROM {live}
         WHERE state = 3
           AND coalesce(worker, 0) NOT IN (
                   SELECT id FROM {worker}
                    WHERE id <> ALL (ARRAY(SELECT value::bigint FROM json_array_elements_text(:dead::text::json))))
         LIMIT :limit) AS l
  LEFT JOIN LATERAL (SELECT j.chain_id, j.position, j.task, {j.claimed}
                       FROM {job} AS j WHERE j.id = l.job_id OFFSET 0) AS j ON true
  LEFT JOIN {worker} AS w ON w.id = l.worker;

-- name: remove_workers
-- A worker's row goes when nothing runs in its name any more.
DELETE FROM {worker} AS w
 WHERE w.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:workers::text::json)))
   AND NOT EXISTS (SELECT 1 FROM {live} AS l WHERE l.state = 3 AND l.worker = w.id);

-- name: read_mark
-- Whoever reads a mark holds it; no row means that somebody else does.
SELECT value FROM {mark} WHERE name = :name FOR UPDATE SKIP LOCKED;

-- name: set_mark
INSERT INTO {mark} (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: keep_job_id
-- Nothing to remember: a sequence never gives an id out again.
SELECT 1 WHERE false;

-- name: walk_old_chains
-- Retention reads the chains by primary key, a bounded batch at a time.
SELECT id, state, created_at, ended_at FROM {chain} WHERE id > :position ORDER BY id LIMIT :limit;

-- name: find_needed
-- Which of these chains somebody may still ask for the output of: a dependent that is open, or one that
-- failed or was cancelled and could be retried.
SELECT DISTINCT b.chain_id
  FROM {blocker} AS b
 CROSS JOIN LATERAL (SELECT j.chain_id FROM {job} AS j WHERE j.id = b.job_id OFFSET 0) AS j
 CROSS JOIN LATERAL (SELECT c.state FROM {chain} AS c WHERE c.id = j.chain_id OFFSET 0) AS c
 WHERE b.chain_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
   AND c.state <> 1
   AND j.chain_id <> ALL (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)));

-- name: count_later_jobs
-- How many jobs these chains have beside their first, where they have any. Rides job_chain.
SELECT j.chain_id, count(*)
  FROM {job} AS j
 WHERE j.chain_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
   AND j.position > 0
 GROUP BY j.chain_id;

-- name: inner_jobs
-- The oldest jobs of a chain behind its first. Rides job_chain.
SELECT j.id FROM {job} AS j
 WHERE j.chain_id = :chain_id AND j.position > 0 ORDER BY j.position LIMIT :limit;

-- name: count_ended_of
-- The ended jobs of chains about to go, for the roll-up.
SELECT j.queue, j.task, a.outcome, count(*)
  FROM {attempt} AS a
 CROSS JOIN LATERAL (SELECT j.queue, j.task FROM {job} AS j WHERE j.id = a.job_id OFFSET 0) AS j
 WHERE a.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
   AND a.final = 1
 GROUP BY 1, 2, 3;

-- name: delete_attempts
DELETE FROM {attempt} AS a
 WHERE a.job_id = ANY (ARRAY(SELECT r.job_id FROM json_to_recordset(:rows::text::json) AS r(job_id bigint)));

-- name: open_keys
-- The whole keys of those of these jobs that are open, and their lanes.
SELECT l.state, l.queue, l.priority, l.job_id, l.lane
  FROM {live} AS l
 WHERE l.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)));

-- name: delete_edges
DELETE FROM {blocker} AS b
 WHERE b.chain_id = ANY (ARRAY(SELECT r.chain_id FROM json_to_recordset(:rows::text::json) AS r(chain_id bigint)));

-- name: delete_edges_of_jobs
DELETE FROM {blocker} AS b
 WHERE b.job_id = ANY (ARRAY(SELECT r.job_id FROM json_to_recordset(:rows::text::json) AS r(job_id bigint)));

-- name: delete_audit_of_jobs
DELETE FROM {audit}
 WHERE job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)));

-- name: drop_old_audit
-- Lines about no job, or none that is left, older than history is kept.
DELETE FROM {audit} WHERE job_id IS NULL AND at < :before;

-- name: delete_keys
-- Of chains that go, where they still have theirs.
-- A key belongs to the task of the chain's first job.
WITH r AS MATERIALIZED (
    SELECT r.*, c.task
      FROM json_to_recordset(:rows::text::json) AS r(chain_id bigint, key text)
     CROSS JOIN LATERAL (SELECT c.task FROM {chain} AS c WHERE c.id = r.chain_id OFFSET 0) AS c
)
DELETE FROM {key} AS k
 USING r
 WHERE k.task = ANY (ARRAY(SELECT r.task FROM r)) AND k.key = ANY (ARRAY(SELECT r.key FROM r))
   AND k.task = r.task AND k.key = r.key AND k.chain_id = r.chain_id;

-- name: delete_jobs
DELETE FROM {job}
 WHERE id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(:rows::text::json) AS r(id bigint)));

-- name: delete_chains
DELETE FROM {chain}
 WHERE id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(:rows::text::json) AS r(id bigint)));

-- name: fold_rollups
-- Rows older than :before, made coarser: one per :unit minutes, without slots.
INSERT INTO {rollup} AS t ({counter}, {counted})
SELECT minute / :unit::bigint * :unit::bigint, queue, task, outcome, -1, {counted summed}
  FROM {rollup}
 WHERE minute < :before AND NOT (slot = -1 AND minute % :unit::bigint = 0)
 GROUP BY 1, 2, 3, 4
ON CONFLICT ({counter}) DO UPDATE SET {counted added};

-- name: drop_folded_rollups
DELETE FROM {rollup} WHERE minute < :before AND NOT (slot = -1 AND minute % :unit::bigint = 0);

-- ---------------------------------------------------------------- read

-- name: job_records
-- Jobs as they stand: primary keys only, one probe for the live row, one for the last attempt.
SELECT {j.stored},
       {l.standing}, w.name, l.worker, l.parked_for,
       a.number, a.outcome, a.worker, a.started_at, a.ended_at, a.output, a.error,
       a.progress, a.progress_text, a.blocker, a.continued_by, a.ended_by, a.run_at,
       a.error_type
  FROM {job} AS j
  LEFT JOIN LATERAL (SELECT {l.standing}, l.worker, l.parked_for
                       FROM {live} AS l WHERE l.job_id = j.id OFFSET 0) AS l ON true
  LEFT JOIN LATERAL (SELECT * FROM {attempt} AS m WHERE m.job_id = j.id
                      ORDER BY m.number DESC LIMIT 1) AS a ON true
  LEFT JOIN {worker} AS w ON w.id = l.worker
 WHERE j.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:ids::text::json)));

-- name: chain_records
SELECT c.id, c.task, c.state, c.created_at, c.ended_at, c.trace, j.label, j.key
  FROM {chain} AS c
 CROSS JOIN LATERAL (SELECT j.label, j.key FROM {job} AS j WHERE j.id = c.id OFFSET 0) AS j
 WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:ids::text::json)));

-- name: chain_tail
-- The last job of a chain: the highest position, or the first job itself.
SELECT coalesce((SELECT id FROM {job}
                  WHERE chain_id = :chain_id AND position > 0 ORDER BY position DESC LIMIT 1),
                (SELECT id FROM {job} WHERE id = :chain_id));

-- name: chain_job_ids
-- All jobs of these chains; the first has the chain's own id.
SELECT j.id, j.chain_id, j.key
  FROM {job} AS j
 WHERE j.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
UNION ALL
SELECT j.id, j.chain_id, j.key
  FROM {job} AS j
 WHERE j.chain_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
   AND j.position > 0;

-- name: list_attempts
-- Ended attempts of these jobs and those that run, by job, oldest first.
SELECT {a.tried}, a.ended_by
  FROM {attempt} AS a
 WHERE a.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
UNION ALL
SELECT l.job_id, l.attempt, 0, NULL, w.name, l.started_at, NULL, NULL, NULL, NULL, l.progress,
       l.progress_text, NULL
  FROM {live} AS l
  LEFT JOIN {worker} AS w ON w.id = l.worker
 WHERE l.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
   AND l.state::integer = 3 AND l.started_at IS NOT NULL
 ORDER BY 1, 2;

-- name: list_blockers
-- What these jobs wait for, in declared order, with the output or error of each chain's last job.
SELECT b.job_id, b.position, b.name, b.chain_id, c.state, t.task, a.output, a.error, b.trace, b.in_line
  FROM {blocker} AS b
 CROSS JOIN LATERAL (SELECT c.id, c.state FROM {chain} AS c WHERE c.id = b.chain_id OFFSET 0) AS c
  LEFT JOIN LATERAL (
       SELECT coalesce((SELECT k.id FROM {job} AS k WHERE k.chain_id = c.id AND k.position > 0
                         ORDER BY k.position DESC LIMIT 1), c.id) AS id) AS e ON true
  LEFT JOIN LATERAL (SELECT t.task FROM {job} AS t WHERE t.id = e.id OFFSET 0) AS t ON true
  LEFT JOIN LATERAL (SELECT * FROM {attempt} AS m WHERE m.job_id = e.id
                      ORDER BY m.number DESC LIMIT 1) AS a ON true
 WHERE b.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
 ORDER BY b.job_id, b.position;

-- name: list_members
-- What one job waits for, from a position on, in declared order, with the output or error of each
-- chain's last job: a page of list_blockers. Rides blocker_job.
SELECT b.job_id, b.position, b.name, b.chain_id, c.state, t.task, a.output, a.error, b.trace, b.in_line
  FROM (SELECT m.job_id, m.position, m.name, m.chain_id, m.trace, m.in_line
          FROM {blocker} AS m WHERE m.job_id = :job_id::bigint AND m.position >= :first::integer
         ORDER BY m.position LIMIT :limit::integer) AS b
 CROSS JOIN LATERAL (SELECT c.id, c.state FROM {chain} AS c WHERE c.id = b.chain_id OFFSET 0) AS c
  LEFT JOIN LATERAL (
       SELECT coalesce((SELECT k.id FROM {job} AS k WHERE k.chain_id = c.id AND k.position > 0
                         ORDER BY k.position DESC LIMIT 1), c.id) AS id) AS e ON true
  LEFT JOIN LATERAL (SELECT t.task FROM {job} AS t WHERE t.id = e.id OFFSET 0) AS t ON true
  LEFT JOIN LATERAL (SELECT * FROM {attempt} AS m WHERE m.job_id = e.id
                      ORDER BY m.number DESC LIMIT 1) AS a ON true
 ORDER BY b.position;

-- name: count_members
-- How many of the chains that a job waits for have ended, and how many of those badly. Looks at each of
-- them, by blocker_job.
SELECT count(*), count(*) FILTER (WHERE c.state IN (2, 3))
  FROM (SELECT m.chain_id FROM {blocker} AS m WHERE m.job_id = :job_id::bigint OFFSET 0) AS b
 CROSS JOIN LATERAL (SELECT c.state FROM {chain} AS c WHERE c.id = b.chain_id OFFSET 0) AS c
 WHERE c.state <> 0;

-- name: list_bad_members
-- The first of the chains that a job waits for which have failed or were cancelled. Looks at each of them
-- up to those, by blocker_job.
SELECT b.position
  FROM (SELECT m.position, m.chain_id FROM {blocker} AS m WHERE m.job_id = :job_id::bigint
         ORDER BY m.position OFFSET 0) AS b
 CROSS JOIN LATERAL (SELECT c.state FROM {chain} AS c WHERE c.id = b.chain_id OFFSET 0) AS c
 WHERE c.state IN (2, 3)
 ORDER BY b.position LIMIT :limit::integer;

-- name: chain_ends
-- Chains with their place in the list, their state, and the output or error of their last jobs.
SELECT 0, x.place - 1, NULL, c.id, c.state, t.task, a.output, a.error, NULL, NULL
  FROM json_array_elements_text(:chains::text::json) WITH ORDINALITY AS x (id, place)
 CROSS JOIN LATERAL (SELECT c.id, c.state FROM {chain} AS c WHERE c.id = x.id::bigint OFFSET 0) AS c
  LEFT JOIN LATERAL (
       SELECT coalesce((SELECT k.id FROM {job} AS k WHERE k.chain_id = c.id AND k.position > 0
                         ORDER BY k.position DESC LIMIT 1), c.id) AS id) AS e ON true
  LEFT JOIN LATERAL (SELECT t.task FROM {job} AS t WHERE t.id = e.id OFFSET 0) AS t ON true
  LEFT JOIN LATERAL (SELECT * FROM {attempt} AS m WHERE m.job_id = e.id
                      ORDER BY m.number DESC LIMIT 1) AS a ON true;

-- name: list_workers
SELECT {registered}
  FROM {worker} ORDER BY id;

-- name: list_paused
SELECT name, paused_at, paused_by FROM {queue} ORDER BY name;

-- name: list_limits
-- All limits, or those of one queue; a gate without a number is none.
SELECT queue, lane, concurrency, rate, per, spent, opens_at, declared, changed_at, changed_by
  FROM {limit}
 WHERE (:queue::text IS NULL OR queue = :queue::text) AND (concurrency IS NOT NULL OR rate IS NOT NULL)
 ORDER BY queue, lane;

-- name: list_lanes
-- Lanes of a queue by name, with what applies to each and how much of it waits, up to :most. Rides the keys of lane and
-- limit, and live_lane.
SELECT n.lane, n.closed, n.served_at, n.opens_at, n.spent, x.lane, x.concurrency, x.rate, x.per, w.waiting
  FROM (SELECT queue, lane, closed, served_at, opens_at, spent FROM {lane}
         WHERE queue = :queue AND lane > :cursor ORDER BY lane LIMIT :limit) AS n
  LEFT JOIN LATERAL (
       SELECT o.lane, o.concurrency, o.rate, o.per FROM {limit} AS o
        WHERE o.queue = n.queue AND o.lane IN (n.lane, '*') AND (o.concurrency IS NOT NULL OR o.rate IS NOT NULL)
        ORDER BY o.lane = '*' LIMIT 1) AS x ON true
 CROSS JOIN LATERAL (
       SELECT count(*) AS waiting
         FROM (SELECT 1 FROM {live} AS l
                WHERE l.state = 4 AND l.queue = n.queue AND l.lane = n.lane AND l.parked_for IS NULL
                LIMIT :most::bigint) AS l) AS w
 ORDER BY n.lane;

-- name: running_lanes
-- What runs in a queue, by lane: weight, number, and the oldest job. Walks the running rows.
SELECT l.lane, sum(coalesce(l.weight, 1)), count(*), min(l.job_id)
  FROM (SELECT job_id, queue, lane, weight FROM {live} WHERE state = 3 OFFSET 0) AS l
 WHERE l.queue = :queue GROUP BY l.lane;

-- name: running_in
-- Which jobs run in a queue, or in a lane of it, up to :limit. Walks the running rows.
SELECT l.job_id, l.claimed_at
  FROM (SELECT job_id, queue, lane, claimed_at FROM {live} WHERE state = 3 OFFSET 0) AS l
 WHERE l.queue = :queue AND (:lane::text IS NULL OR l.lane = :lane::text)
 ORDER BY l.job_id LIMIT :limit;

-- name: read_limit
-- The limit of a queue itself.
SELECT concurrency, rate, per, spent FROM {limit} WHERE queue = :queue AND lane = '';

-- name: read_lane
-- A lane as it stands, also by notes that were not collected yet, and what applies to it.
SELECT CASE WHEN t.until > :now::bigint THEN 2 ELSE n.closed END,
       CASE WHEN t.until > :now::bigint THEN greatest(t.until, n.opens_at) ELSE n.opens_at END,
       x.concurrency, x.rate, x.per, n.spent
  FROM (SELECT :queue::text COLLATE "C" AS queue, :lane::text COLLATE "C" AS lane) AS k
  LEFT JOIN LATERAL (SELECT n.closed, n.opens_at, n.spent FROM {lane} AS n
                      WHERE n.queue = k.queue AND n.lane = k.lane OFFSET 0) AS n ON true
  LEFT JOIN LATERAL (SELECT max(t.until) AS until FROM {note} AS t
                      WHERE t.queue = k.queue AND t.lane = k.lane OFFSET 0) AS t ON true
  LEFT JOIN LATERAL (
       SELECT o.lane, o.concurrency, o.rate, o.per FROM {limit} AS o
        WHERE o.queue = k.queue AND o.lane IN (k.lane, '*') AND (o.concurrency IS NOT NULL OR o.rate IS NOT NULL)
        ORDER BY o.lane = '*' LIMIT 1) AS x ON true;

-- name: count_parked
-- Jobs that are parked, by the reason, no more than :limit are counted. Rides live_parked.
SELECT parked_for, count(*)
  FROM (SELECT parked_for FROM {live} WHERE state = 4 AND parked_for IS NOT NULL
         ORDER BY parked_for, queue, priority DESC, job_id LIMIT :limit) AS l
 GROUP BY parked_for;

-- name: list_audit
-- What people did, newest first; what was done to many counts once. Rides audit_told.
SELECT {noted} FROM {audit}
 WHERE number IS NOT NULL AND id < :cursor
 ORDER BY id DESC LIMIT :limit;

-- name: list_audit_of_job
-- Rides audit_job.
SELECT {noted} FROM {audit}
 WHERE job_id = :job_id AND id < :cursor
 ORDER BY id DESC LIMIT :limit;

-- name: list_audit_of_queue
-- Rides audit_queue.
SELECT {noted} FROM {audit}
 WHERE queue = :queue AND id < :cursor
 ORDER BY id DESC LIMIT :limit;

-- name: count_before
-- How many pending jobs of the queue are claimed before this one, no more than :most are counted. Rides
-- live_pending, twice.
SELECT count(*)
  FROM ((SELECT 1 FROM {live} AS l
          WHERE l.state = 0 AND l.queue = :queue AND l.priority > :priority LIMIT :most::bigint)
        UNION ALL
        (SELECT 1 FROM {live} AS l
          WHERE l.state = 0 AND l.queue = :queue AND l.priority = :priority AND l.job_id < :job_id
          LIMIT :most::bigint)
        LIMIT :most::bigint) AS before;

-- name: count_before_in_lane
-- The same of one that waits in a lane, in which it waits for its turn. Rides live_lane, twice.
SELECT count(*)
  FROM ((SELECT 1 FROM {live} AS l
          WHERE l.state = 4 AND l.queue = :queue AND l.lane = :lane AND l.parked_for IS NULL
            AND l.priority > :priority LIMIT :most::bigint)
        UNION ALL
        (SELECT 1 FROM {live} AS l
          WHERE l.state = 4 AND l.queue = :queue AND l.lane = :lane AND l.parked_for IS NULL
            AND l.priority = :priority AND l.job_id < :job_id LIMIT :most::bigint)
        LIMIT :most::bigint) AS before;

-- name: live_strips
-- The (queue, priority) groups of one state, by probing from one to the next: cost grows with groups.
WITH RECURSIVE q(queue) AS (
    (SELECT queue FROM {live} WHERE state = {state} ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT l.queue FROM {live} AS l WHERE l.state = {state} AND l.queue > q.queue
             ORDER BY l.queue LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL
), p(queue, priority) AS (
    SELECT q.queue, (SELECT l.priority FROM {live} AS l WHERE l.state = {state} AND l.queue = q.queue
                      ORDER BY l.priority DESC LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL
    UNION ALL
    SELECT p.queue, (SELECT l.priority FROM {live} AS l
                      WHERE l.state = {state} AND l.queue = p.queue AND l.priority < p.priority
                      ORDER BY l.priority DESC LIMIT 1)
      FROM p WHERE p.priority IS NOT NULL
)
SELECT queue, priority FROM p WHERE priority IS NOT NULL;

-- name: live_priorities
-- The priorities of one state in one queue, by probing from one to the next.
WITH RECURSIVE p(priority) AS (
    SELECT (SELECT priority FROM {live} WHERE state = {state} AND queue = :queue ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT l.priority FROM {live} AS l
             WHERE l.state = {state} AND l.queue = :queue AND l.priority < p.priority
             ORDER BY l.priority DESC LIMIT 1)
      FROM p WHERE p.priority IS NOT NULL
)
SELECT priority FROM p WHERE priority IS NOT NULL;

-- name: job_strips
-- The (queue, task) groups ever used, by probing job_strip.
WITH RECURSIVE q(queue) AS (
    (SELECT queue FROM {job} ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM {job} AS j WHERE j.queue > q.queue ORDER BY j.queue LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL
), t(queue, task) AS (
    SELECT q.queue, (SELECT j.task FROM {job} AS j WHERE j.queue = q.queue ORDER BY j.task LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL
    UNION ALL
    SELECT t.queue, (SELECT j.task FROM {job} AS j
                      WHERE j.queue = t.queue AND j.task > t.task ORDER BY j.task LIMIT 1)
      FROM t WHERE t.task IS NOT NULL
)
SELECT queue, task FROM t WHERE task IS NOT NULL;

-- The walks below give job ids past a cursor in one direction, at most :limit of them. Each exists
-- twice: _newest (descending) and _oldest (ascending).

-- name: walk_jobs
SELECT id FROM {job} WHERE id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_strip
SELECT id FROM {job}
 WHERE queue = :queue AND task = :task AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_live
-- What runs (3) is in no index by queue, but few: all of it is read, and not the whole table by its key.
(SELECT job_id FROM {live}
  WHERE state = {state} AND {state} <> 3 AND queue = :queue AND priority = :priority
    AND job_id {past} :cursor
  ORDER BY job_id {direction} LIMIT :limit)
UNION ALL
(SELECT job_id
   FROM (SELECT job_id, queue, priority FROM {live} WHERE state = 3 AND {state} = 3 OFFSET 0) AS l
  WHERE queue = :queue AND priority = :priority AND job_id {past} :cursor
  ORDER BY job_id {direction} LIMIT :limit)
 ORDER BY job_id {direction} LIMIT :limit;

-- name: walk_bad
SELECT job_id FROM {attempt}
 WHERE final = 1 AND outcome NOT IN (1, 2) AND job_id {past} :cursor
 ORDER BY job_id {direction} LIMIT :limit;

-- name: walk_tried
-- Jobs with an ended attempt, by probing from one to the next.
WITH RECURSIVE t(job_id, number) AS (
    (SELECT a.job_id, 1 FROM {attempt} AS a
      WHERE a.job_id {past} :cursor ORDER BY a.job_id {direction} LIMIT 1)
    UNION ALL
    SELECT (SELECT a.job_id FROM {attempt} AS a
             WHERE a.job_id {past} t.job_id ORDER BY a.job_id {direction} LIMIT 1), t.number + 1
      FROM t WHERE t.job_id IS NOT NULL AND t.number < :limit
)
SELECT job_id FROM t WHERE job_id IS NOT NULL;

-- name: ended_jobs
-- Which of these jobs ended in a range of time. Rides the primary key of attempt.
SELECT a.job_id
  FROM {attempt} AS a
 WHERE a.job_id = ANY (ARRAY(SELECT x.value::bigint FROM json_array_elements_text(:jobs::text::json) AS x))
   AND a.final::integer = 1 AND a.ended_at >= :since AND a.ended_at < :until;

-- name: walk_label
SELECT id FROM {job}
 WHERE label = :label AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_key
SELECT id FROM {job}
 WHERE key = :key AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_schedule
SELECT id FROM {job}
 WHERE schedule = :schedule AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_chain_jobs
(SELECT id FROM {job} WHERE id = :chain_id AND id {past} :cursor)
UNION ALL
(SELECT k.id FROM (SELECT id FROM {job} WHERE chain_id = :chain_id AND position > 0 OFFSET 0) AS k
  WHERE k.id {past} :cursor)
 ORDER BY id {direction} LIMIT :limit;

-- name: chain_tasks
-- The task that each of these chains began with. Rides the primary key of chain.
SELECT c.id, c.task FROM {chain} AS c WHERE c.id = ANY (ARRAY(SELECT x.value::bigint FROM json_array_elements_text(:chains::text::json) AS x));

-- name: later_jobs
-- Jobs of these chains behind their first. Rides job_chain.
SELECT j.id
  FROM json_array_elements_text(:chains::text::json) AS x
 CROSS JOIN LATERAL (SELECT j.id FROM {job} AS j
                      WHERE j.chain_id = x.value::bigint AND j.position > 0 LIMIT :limit) AS j
 LIMIT :limit;

-- name: walk_chains
SELECT id FROM {chain} WHERE id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_bad_chains
SELECT id FROM {chain}
 WHERE bad AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: count_live
-- Open jobs, as far as anybody asks: a count of all would read all.
SELECT count(*) FROM (SELECT 1 FROM {live} LIMIT 100001) AS l;

-- name: open_chain_ids
-- Chains of all open jobs; asked only when they are few.
SELECT j.chain_id
  FROM {live} AS l JOIN {job} AS j ON j.id = l.job_id;

-- name: id_bounds
SELECT coalesce((SELECT min(id) FROM {job}), 1), coalesce((SELECT max(id) FROM {job}), 0);

-- name: created_near
-- When the first job at or after an id was created, to find an id by time.
SELECT id, created_at FROM {job} WHERE id >= :id ORDER BY id LIMIT 1;

-- name: count_strip
-- Open jobs of a state and queue, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM {live} WHERE state = {state} AND queue = :queue LIMIT :limit) AS l;

-- name: count_strips
-- Open jobs of a state by queue, where there are very many queues; counted up to a limit in all.
SELECT l.queue, count(*)
  FROM (SELECT queue FROM {live} WHERE state = {state} LIMIT :limit) AS l GROUP BY l.queue;

-- name: count_ahead
-- Jobs of a queue that were claimed ahead and have not begun. Walks the running rows only.
SELECT count(*)
  FROM (SELECT 1 FROM {live} WHERE state = 3 AND queue = :queue AND started_at IS NULL LIMIT :limit) AS l;

-- name: sum_rollups
SELECT queue, outcome, sum(ended - removed)::bigint FROM {rollup} GROUP BY queue, outcome;

-- name: count_tasks
-- Open jobs of a state by task, those that were claimed ahead and have not begun apart; counted up to a limit
-- in all. Rides the primary key of job.
SELECT j.task, l.state = 3 AND l.started_at IS NULL, count(*)
  FROM (SELECT job_id, state, started_at FROM {live} WHERE state = {state} LIMIT :limit OFFSET 0) AS l
 CROSS JOIN LATERAL (SELECT j.task FROM {job} AS j WHERE j.id = l.job_id OFFSET 0) AS j
 GROUP BY 1, 2;

-- name: sum_task_rollups
SELECT task, outcome, sum(ended - removed)::bigint FROM {rollup} GROUP BY task, outcome;

-- name: read_rollups
-- Jobs that ended in a range of minutes, by bucket of :unit minutes; with :whole 1 not by queue and task. A range of the
-- primary key.
SELECT minute / :unit::bigint * :unit::bigint, CASE :whole::integer WHEN 1 THEN '' ELSE queue END,
       CASE :whole::integer WHEN 1 THEN '' ELSE task END, outcome, {counted summed}
  FROM {rollup}
 WHERE minute >= :since::bigint AND minute < :until::bigint AND ended > 0
   AND (:queue::text IS NULL OR queue = :queue::text)
   AND (:task::text IS NULL OR task = :task::text)
   AND (:outcome::smallint IS NULL OR outcome = :outcome::smallint)
 GROUP BY 1, 2, 3, 4
 ORDER BY 1, 2, 3, 4;

-- name: group_failures
-- What failed for good, by task and kind of error, of the newest :limit jobs before :cursor that ended badly: how many of
-- those were looked at, how many fit, the first and the last time, the newest job. Index attempt_bad.
SELECT task, outcome, error_type, count(*), count(*) FILTER (WHERE fits),
       min(ended_at) FILTER (WHERE fits), max(ended_at) FILTER (WHERE fits),
       max(job_id) FILTER (WHERE fits)
  FROM (SELECT a.job_id, a.outcome, a.error_type, a.ended_at, j.task,
               a.outcome <> 6 AND a.ended_at >= :since::bigint AND a.ended_at < :until::bigint
               AND (:queue::text IS NULL OR j.queue = :queue::text)
               AND (:task::text IS NULL OR j.task = :task::text) AS fits
          FROM (SELECT job_id, outcome, error_type, ended_at FROM {attempt}
                 WHERE final = 1 AND outcome NOT IN (1, 2) AND job_id < :cursor
                 ORDER BY job_id DESC LIMIT :limit) AS a
          JOIN {job} AS j ON j.id = a.job_id) AS newest
 GROUP BY 1, 2, 3;

-- ---------------------------------------------------------------- control

-- name: clear_final
-- Retry: the old last attempt no longer ends the job.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json) AS r(job_id bigint, number integer)
)
UPDATE {attempt} AS a SET final = NULL
  FROM r
 WHERE a.job_id = ANY (ARRAY(SELECT r.job_id FROM r)) AND a.job_id = r.job_id AND a.number = r.number;

-- name: insert_attempt
-- An ending from outside, beside the attempt it cut short.
INSERT INTO {attempt} (job_id, number, outcome, final, ended_at, output, error, continued_by, ended_by)
VALUES (:job_id, :number, :outcome, 1, :now, :output, :error, :continued_by, :ended_by);

-- name: reopen_chain
UPDATE {chain} SET state = 0, bad = false, ended_at = NULL
 WHERE id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(:rows::text::json) AS r(id bigint)));

-- name: blocker_states
-- What these jobs wait or waited for, and how it stands.
SELECT b.job_id, b.chain_id, c.state
  FROM {blocker} AS b
 CROSS JOIN LATERAL (SELECT c.state FROM {chain} AS c WHERE c.id = b.chain_id OFFSET 0) AS c
 WHERE b.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)));

-- name: block_again
-- A blocker that had ended is open again: whoever has not begun waits for it again. They are held.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json) AS r(open_blockers integer, state smallint, job_id bigint)
)
UPDATE {live} AS l SET state = 2, open_blockers = r.open_blockers, parked_for = NULL
  FROM r
 WHERE l.job_id = ANY (ARRAY(SELECT r.job_id FROM r)) AND l.job_id = r.job_id AND l.state = r.state;

-- name: blockers_of_jobs
-- Every chain these jobs wait for: what a cascade follows, also from continuations.
SELECT DISTINCT b.chain_id
  FROM {blocker} AS b
 WHERE b.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)));

-- name: find_waiting_outside
-- Open jobs that wait for these chains and do not belong to them.
SELECT DISTINCT b.chain_id, b.job_id
  FROM {blocker} AS b
 CROSS JOIN LATERAL (SELECT j.chain_id FROM {job} AS j WHERE j.id = b.job_id OFFSET 0) AS j
 WHERE EXISTS (SELECT 1 FROM {live} AS l WHERE l.job_id = b.job_id OFFSET 0)
   AND b.chain_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
   AND j.chain_id <> ALL (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
 ORDER BY b.job_id;

-- name: pause_queue
INSERT INTO {queue} (name, paused_at, paused_by) VALUES (:name, :now, :by)
ON CONFLICT (name) DO NOTHING;

-- name: resume_queue
DELETE FROM {queue} WHERE name = :name;

-- name: set_limit
-- What a person or the code says of a queue or a lane. What was spent stays: it is as old as it is. The gate is held.
INSERT INTO {limit} AS t (queue, lane, concurrency, rate, per, declared, declared_in, changed_at, changed_by)
VALUES (:queue, :lane, :concurrency, :rate, :per, :declared, :declared_in, :now, :by)
ON CONFLICT (queue, lane) DO UPDATE
   SET concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per, opens_at = NULL,
       declared = coalesce(excluded.declared, t.declared), declared_in = coalesce(excluded.declared_in, t.declared_in),
       changed_at = excluded.changed_at, changed_by = excluded.changed_by;

-- name: drop_limit
-- A row without numbers goes, unless it is a queue's own, which is its gate, or the code declares one: then it says that
-- a person has taken it away.
DELETE FROM {limit}
 WHERE queue = :queue AND lane = :lane AND lane <> '' AND declared IS NULL AND concurrency IS NULL AND rate IS NULL;

-- name: forget_declared
-- The code declares it no more.
UPDATE {limit} SET declared = NULL, declared_in = NULL WHERE queue = :queue AND lane = :lane;

-- name: declare_limit
-- The code declares the same as before, among others. The gate is held.
UPDATE {limit} SET declared_in = :declared_in WHERE queue = :queue AND lane = :lane;

-- name: list_declared_limits
-- What code has declared, and what people have set. Walks the limits.
SELECT queue, lane, declared, declared_in
  FROM {limit} WHERE declared IS NOT NULL OR concurrency IS NOT NULL OR rate IS NOT NULL;

-- name: reopen_lanes
-- A limit has changed: lanes that were kept waiting are looked at again. Walks the lanes of the queue. The gate is held.
UPDATE {lane} SET closed = 0, opens_at = NULL
 WHERE queue = :queue AND closed IN (1, 2) AND (:lane::text IN ('', '*') OR lane = :lane::text);

-- name: insert_audit
INSERT INTO {audit} (at, done_by, action, job_id, queue, number, chosen)
SELECT at, done_by, action, job_id, queue, number, chosen
  FROM json_to_recordset(:rows::text::json)
    AS r(at bigint, done_by text, action text, job_id bigint, queue text, number integer, chosen text);

-- ---------------------------------------------------------------- schedules

-- name: glance
-- When the next tick of these tasks is, one probe of schedule_next for each; what those of them that code has
-- declared were declared in, and the limits of queues that are :known (schedule_declared, limit_declared); and
-- which of these queues have a gate, lanes or notes, which is three probes for each.
SELECT (SELECT min(s.next_at)
          FROM json_array_elements_text(:tasks::text::json) AS t
         CROSS JOIN LATERAL (SELECT s.next_at FROM {schedule} AS s
                              WHERE s.task = t.value AND s.paused_at IS NULL AND s.next_at IS NOT NULL
                              ORDER BY s.next_at LIMIT 1) AS s),
       (SELECT coalesce(json_agg(DISTINCT s.declared_in), '[]'::json)::text
          FROM json_array_elements_text(:tasks::text::json) AS t
         CROSS JOIN LATERAL (SELECT DISTINCT s.declared_in FROM {schedule} AS s
                              WHERE s.task = t.value AND s.declared IS NOT NULL OFFSET 0) AS s),
       (SELECT coalesce(json_agg(DISTINCT g.declared_in), '[]'::json)::text
          FROM json_array_elements_text(:known::text::json) AS k
         CROSS JOIN LATERAL (SELECT DISTINCT g.declared_in FROM {limit} AS g
                              WHERE g.queue = k.value AND g.declared IS NOT NULL OFFSET 0) AS g),
       (SELECT coalesce(json_agg(q.value), '[]')::text
          FROM json_array_elements_text(:queues::text::json) AS q
         WHERE EXISTS (SELECT 1 FROM {limit} AS g
                        WHERE g.queue = q.value AND g.lane = ''
                          AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL) OFFSET 0)
            OR (SELECT n.lane FROM {lane} AS n WHERE n.queue = q.value ORDER BY n.lane LIMIT 1) IS NOT NULL
            OR (SELECT n.lane FROM {note} AS n WHERE n.queue = q.value ORDER BY n.lane LIMIT 1) IS NOT NULL);

-- name: find_due_schedules
-- Schedules of these tasks with a tick that has come, now ours: those that another worker fires, or somebody
-- changes, are passed over. Who gets one that was fired this moment sees it by reading it anew. Rides
-- schedule_next.
SELECT x.name
  FROM json_array_elements_text(:tasks::text::json) AS t
 CROSS JOIN LATERAL (
       SELECT s.name
         FROM {schedule} AS s
        WHERE s.task = t.value AND s.paused_at IS NULL AND s.next_at IS NOT NULL AND s.next_at <= :now
        ORDER BY s.next_at
        LIMIT :limit::integer
          FOR UPDATE SKIP LOCKED) AS x
 LIMIT :limit::integer;

-- name: read_schedules
SELECT {planned}, {since}
  FROM {schedule}
 WHERE name = ANY (ARRAY(SELECT value FROM json_array_elements_text(:names::text::json)))
 ORDER BY name;

-- name: list_schedules
-- Past a name, by the primary key.
SELECT {planned}, {since} FROM {schedule} WHERE name > :cursor ORDER BY name LIMIT :limit;

-- name: list_schedules_of_task
-- Rides schedule_task.
SELECT {planned}, {since} FROM {schedule}
 WHERE task = :task AND name > :cursor ORDER BY name LIMIT :limit;

-- name: list_declared
-- Schedules of these tasks that code has declared. Rides schedule_declared.
SELECT s.name
  FROM json_array_elements_text(:tasks::text::json) AS t
 CROSS JOIN LATERAL (SELECT s.name FROM {schedule} AS s
                      WHERE s.task = t.value AND s.declared IS NOT NULL OFFSET 0) AS s;

-- name: set_schedules
-- Made, or made anew: its pause and its history stay.
INSERT INTO {schedule} ({planned})
SELECT {planned}
  FROM json_to_recordset(:rows::text::json) AS r({planned typed})
 ORDER BY name COLLATE "C"
ON CONFLICT (name) DO UPDATE
   SET task = excluded.task, template = excluded.template, cron = excluded.cron, every = excluded.every,
       tz = excluded.tz, start_at = excluded.start_at, end_at = excluded.end_at, jitter = excluded.jitter,
       catch_up = excluded.catch_up, overlap = excluded.overlap, declared = excluded.declared,
       declared_in = excluded.declared_in, next_at = excluded.next_at;

-- name: declare_schedules
-- Declared as before, among other things than before. They are held.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json) AS r(declared_in text, name text)
)
UPDATE {schedule} AS s SET declared_in = r.declared_in
  FROM r
 WHERE s.name = ANY (ARRAY(SELECT r.name FROM r)) AND s.name = r.name;

-- name: advance_schedules
-- After ticks: the jobs of these ticks are stored in the same transaction, and the schedules are held.
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json)
        AS r(next_at bigint, last_tick bigint, last_chain bigint, ticks bigint, skipped bigint, missed bigint,
             name text)
)
UPDATE {schedule} AS s
   SET next_at = r.next_at, last_tick = coalesce(r.last_tick, s.last_tick),
       last_chain = coalesce(r.last_chain, s.last_chain), ticks = s.ticks + r.ticks,
       skipped = s.skipped + r.skipped, missed = s.missed + r.missed
  FROM r
 WHERE s.name = ANY (ARRAY(SELECT r.name FROM r)) AND s.name = r.name;

-- name: pause_schedule
UPDATE {schedule} SET paused_at = :now, paused_by = :by WHERE name = :name AND paused_at IS NULL;

-- name: resume_schedule
UPDATE {schedule} SET paused_at = NULL, paused_by = NULL, next_at = :next_at WHERE name = :name;

-- name: delete_schedules
DELETE FROM {schedule}
 WHERE name = ANY (ARRAY(SELECT r.name FROM json_to_recordset(:rows::text::json) AS r(name text)));

-- ---------------------------------------------------------------- schema

-- name: clock
-- The time that decides; it moves inside a transaction.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: has_tables
SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('{migration}');

-- name: find_prefixes
-- How the names of tables like ours begin, and their schema: for whoever looks with a wrong prefix.
SELECT left(m.relname, -9), s.nspname
FROM pg_catalog.pg_class m JOIN pg_catalog.pg_namespace s ON s.oid = m.relnamespace
WHERE m.relkind = 'r' AND right(m.relname, 9) = 'migration' AND EXISTS (
    SELECT 1 FROM pg_catalog.pg_class l
    WHERE l.relnamespace = m.relnamespace AND l.relkind = 'r'
      AND left(l.relname, -4) = left(m.relname, -9) AND right(l.relname, 4) = 'live'
)
ORDER BY 1, 2;

-- name: find_relations
-- Those of these tables, views and sequences that are there, and what each is: `towline bench` has some of its own.
SELECT c.relname, CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = '{schema}' AND c.relkind IN ('r', 'p', 'f', 'v', 'm', 'S')
  AND c.relname IN (SELECT value FROM json_array_elements_text(:names::text::json))
ORDER BY 1;

-- name: engine_version
SELECT current_setting('server_version');

-- name: list_migrations
SELECT name FROM {migration} ORDER BY name;

-- name: record_migration
INSERT INTO {migration} (name, applied_at)
SELECT name, now FROM json_to_recordset(:rows::text::json) AS r(name text, now bigint);

-- name: describe_database
-- What doctor cannot know otherwise: the server's version and settings, and the age in seconds of the oldest
-- transaction of those that the role may see: dead rows stay as long as it does.
SELECT current_setting('server_version_num')::integer, current_setting('autovacuum'),
       pg_is_in_recovery()::integer,
       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint
          FROM pg_catalog.pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid());

-- ---------------------------------------------------------------- only here: what is one statement

-- name: promote_due
-- Scheduled jobs whose time has come become pending, or go into their lanes, the oldest first. Rides live_due. Each row says, first, how
-- many entries of that index were passed, as claim_pending does; there is one row if nothing is promoted.
-- Named promote_due_above, it looks for what has become due since then only.
WITH before AS MATERIALIZED (
    SELECT pg_stat_get_xact_tuples_returned('"{schema}".{prefix}live_due'::regclass) AS passed
), r AS MATERIALIZED (
    SELECT l.job_id
      FROM before
     CROSS JOIN LATERAL (
           SELECT l.job_id
             FROM {live} AS l
            WHERE l.state = 1 AND l.run_at <= :now
            -- above: AND l.run_at >= :since
            ORDER BY l.run_at
            LIMIT :limit
              FOR UPDATE SKIP LOCKED) AS l
), p AS (
    UPDATE {live} SET state = CASE WHEN lane IS NULL THEN 0 ELSE 4 END
     WHERE job_id = ANY (ARRAY(SELECT r.job_id FROM r)) AND state::integer = 1
    RETURNING job_id, queue, priority, lane
)
SELECT (SELECT pg_stat_get_xact_tuples_returned('"{schema}".{prefix}live_due'::regclass) - passed FROM before),
       p.job_id, p.queue, p.priority, p.lane
  FROM (SELECT 1) AS one LEFT JOIN p ON true;

-- name: claim_pending
-- The next jobs in order of claiming: pending → running, and the attempt number, which is the fence, grows.
-- For each queue a range of live_pending, stopped as soon as enough rows are found; never a sort of the
-- backlog. Rows that somebody else is about to claim are passed over. Of several queues only so many rows are
-- taken from each as come first among all: what one worker holds and does not want is hidden from the
-- others. A paused or limited queue is left out. A worker that gives its name must still be registered, and stays so
-- until the commit: what a swept one claims would count as lost. The first :free of them begin at once, but
-- for those that have lost :safe workers.
-- Each row says, first, how many entries of the index were passed on the way to all of them: those of jobs that
-- are claimed or gone stay there while a snapshot is older than that. There is one row if nothing is claimed.
-- Without a time it is the server's as it runs: what was freed since the transaction began was freed before that.
-- Named claim_pending_above, it begins behind them: at the head of each priority of a queue that is known.
WITH before AS MATERIALIZED (
    SELECT pg_stat_get_xact_tuples_returned('"{schema}".{prefix}live_pending'::regclass) AS passed,
           coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), me AS MATERIALIZED (
    SELECT w.id FROM {worker} AS w WHERE w.id = :worker AND w.name = :name FOR KEY SHARE SKIP LOCKED
), q AS MATERIALIZED (
    SELECT value AS queue, priority, head, count(*) OVER () AS queues
      FROM before -- so that it is asked before anything is passed
     CROSS JOIN json_to_recordset(:queues::text::json) AS q(value text, priority integer, head bigint)
     WHERE (:name::text IS NULL OR EXISTS (SELECT 1 FROM me))
       AND value NOT IN (SELECT p.name FROM {queue} AS p)
       AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*')
       AND value NOT IN (SELECT g.queue FROM {limit} AS g
                          WHERE g.lane = '' AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL))
), share AS MATERIALIZED (
    SELECT q.queue, q.priority, q.head, :room::bigint AS room FROM q WHERE q.queues = 1
    UNION ALL
    SELECT x.queue, x.range, x.head, count(*)
      FROM (SELECT q.queue, q.priority AS range, q.head, c.priority, c.job_id
              FROM q
             CROSS JOIN LATERAL (
                   SELECT l.priority, l.job_id
                     FROM {live} AS l
                    WHERE l.state = 0 AND l.queue = q.queue
                    -- above: AND l.priority = q.priority AND l.job_id >= q.head
                    ORDER BY l.priority DESC, l.job_id
                    LIMIT :room::bigint) AS c
             WHERE q.queues > 1
             ORDER BY c.priority DESC, c.job_id
             LIMIT :room::bigint) AS x
     GROUP BY x.queue, x.range, x.head
), r AS MATERIALIZED (
    SELECT x.row, x.job_id, row_number() OVER (ORDER BY x.priority DESC, x.job_id) AS place
      FROM share AS s
     CROSS JOIN LATERAL (
           SELECT l.ctid AS row, l.job_id, l.priority
             FROM {live} AS l
            WHERE l.state = 0 AND l.queue = s.queue
            -- above: AND l.priority = s.priority AND l.job_id >= s.head
            ORDER BY l.priority DESC, l.job_id
            LIMIT s.room
              FOR UPDATE SKIP LOCKED) AS x
), found AS (
    SELECT r.row, r.place, j.chain_id, j.position, j.task, j.arguments, {j.claimed}
      FROM r
     CROSS JOIN LATERAL (
           SELECT j.chain_id, j.position, j.task, j.arguments, {j.claimed}
             FROM {job} AS j WHERE j.id = r.job_id OFFSET 0) AS j
    OFFSET 0
), c AS (
    UPDATE {live} AS l
       SET state = 3, attempt = l.attempt + 1, claimed_at = (SELECT b.now FROM before AS b), worker = :worker,
           progress = NULL, progress_text = NULL,
           started_at = CASE WHEN f.place <= :free::bigint AND l.lost < :safe::bigint
                             THEN (SELECT b.now FROM before AS b) END
      FROM found AS f
     WHERE l.ctid = f.row AND l.state::integer = 0
    RETURNING l.job_id, l.attempt, l.queue, l.priority, f.chain_id, f.position, f.task, f.arguments,
              l.used, l.lost, {f.claimed}, l.run_at, l.claimed_at, l.worker
)
SELECT (SELECT pg_stat_get_xact_tuples_returned('"{schema}".{prefix}live_pending'::regclass)
               - b.passed FROM before AS b),
       c.job_id, c.attempt, c.queue, c.priority, c.chain_id, c.position, c.task, c.arguments,
       c.used, c.lost, {c.claimed}, c.run_at, c.claimed_at, c.worker
  FROM (SELECT 1) AS one LEFT JOIN c ON true;

-- name: hold_ending
-- Chains that are about to end, taken without waiting: nobody begins to wait for them meanwhile. Says which, as
-- one array.
SELECT array_agg(c.id)::text, current_setting('transaction_isolation')
  FROM (SELECT c.id FROM {chain} AS c WHERE c.id = ANY (:chains::text::bigint[])
           FOR NO KEY UPDATE OF c SKIP LOCKED) AS c;

-- name: settle_jobs
-- The whole end of jobs that ran, are over, and end a chain that was :taken and that nobody waits for: nearly
-- all. A list for each column, in the same order. Everything follows from the rows that passed the fence.
WITH free AS MATERIALIZED (
    SELECT t.id FROM unnest(:taken::text::bigint[]) AS t(id)
     WHERE t.id NOT IN (SELECT b.chain_id FROM {blocker} AS b WHERE b.chain_id = ANY (:taken::text::bigint[]))
), held AS MATERIALIZED (
    SELECT l.row, r.job_id, r.chain_id, r.outcome, r.attempt, l.queue, r.task, l.run_at,
           nullif(coalesce(r.started_at, l.started_at, l.claimed_at), -1) AS began, r.output, r.error, r.error_type,
           l.progress, l.progress_text
      FROM ROWS FROM (
           unnest(:jobs::text::bigint[]), unnest(:chains::text::bigint[]), unnest(:attempts::text::integer[]),
           unnest(:holders::text::bigint[]), unnest(:outcomes::text::smallint[]),
           unnest(:started::text::bigint[]), json_array_elements_text(:tasks::text::json),
           json_array_elements_text(:outputs::text::json), json_array_elements_text(:errors::text::json),
           json_array_elements_text(:error_types::text::json))
        AS r(job_id, chain_id, attempt, held_by, outcome, started_at, task, output, error, error_type)
     CROSS JOIN LATERAL (
           SELECT l.ctid AS row, l.queue, l.run_at, l.started_at, l.claimed_at, l.progress, l.progress_text
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
     WHERE r.chain_id IN (SELECT f.id FROM free AS f)
), gone AS (
    DELETE FROM {live} AS l USING held AS h WHERE l.ctid = h.row
    RETURNING h.*
), recorded AS (
    INSERT INTO {attempt} ({tried})
    SELECT job_id, attempt, outcome, 1, :worker, began, :now, output, error, error_type, progress,
           progress_text
      FROM gone
), completed AS (
    UPDATE {chain} SET state = 1, ended_at = :now
     WHERE id = ANY (ARRAY(SELECT g.chain_id FROM gone AS g WHERE g.outcome = 1)) AND state = 0
), failed AS (
    UPDATE {chain} SET state = 2, bad = true, ended_at = :now
     WHERE id = ANY (ARRAY(SELECT g.chain_id FROM gone AS g WHERE g.outcome NOT IN (1, 6))) AND state = 0
), cancelled AS (
    UPDATE {chain} SET state = 3, bad = true, ended_at = :now
     WHERE id = ANY (ARRAY(SELECT g.chain_id FROM gone AS g WHERE g.outcome = 6)) AND state = 0
), counted AS (
    INSERT INTO {rollup} AS t ({counter}, {counted})
    SELECT :now::bigint / 60000000, queue, task, outcome,
           CASE :slot::bigint WHEN 0 THEN -1 - pg_backend_pid() ELSE :slot::bigint END, count(*), 0,
           sum(ran), sum((h = 0)::int), sum((h = 1)::int), sum((h = 2)::int), sum((h = 3)::int),
           sum((h = 4)::int), sum((h = 5)::int), sum((h = 6)::int), sum((h = 7)::int),
           sum(waited), sum((w = 0)::int), sum((w = 1)::int), sum((w = 2)::int), sum((w = 3)::int),
           sum((w = 4)::int), sum((w = 5)::int), sum((w = 6)::int), sum((w = 7)::int)
      FROM (SELECT queue, task, outcome, ran, CASE WHEN began IS NULL THEN -1 ELSE width_bucket(ran, bounds) END AS h,
                   waited, CASE WHEN began IS NULL THEN -1 ELSE width_bucket(waited, bounds) END AS w
              FROM (SELECT queue, task, outcome, began, greatest(:now::bigint - began, 0) AS ran,
                           greatest(began - run_at, 0) AS waited,
                           ARRAY[1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000]::bigint[] AS bounds
                      FROM gone) AS g) AS g
     GROUP BY queue, task, outcome
     ORDER BY queue, task, outcome
    ON CONFLICT ({counter}) DO UPDATE SET {counted added}
)
SELECT job_id FROM gone;

-- name: enqueue_plain
-- New chains without keys, blockers, or what only some jobs have, from ids to rows in one. Jobs that follow one another and differ in
-- their arguments only are one run. The ids are given out in the order of the jobs.
WITH c AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), r AS MATERIALIZED (
    SELECT nextval('{job_ids}') AS id, c.now, {r.said}, r.policy, a.arguments, r.trace,
           greatest(c.now, coalesce(r.at, c.now + coalesce(r.delay, 0))) AS run_at
      FROM c
     CROSS JOIN json_to_recordset(:runs::text::json)
        AS r({said typed}, policy smallint, trace text, at bigint, delay bigint, arguments json)
     CROSS JOIN LATERAL json_array_elements_text(r.arguments) AS a(arguments)
), chains AS (
    INSERT INTO {chain} (id, task, created_at, trace) SELECT id, task, now, trace FROM r
), jobs AS (
    INSERT INTO {job} (id, chain_id, position, {said}, blockers, policy, arguments, trace, created_at)
    SELECT id, id, 0, {said}, 0, policy, arguments, trace, now FROM r
), lives AS (
    INSERT INTO {live} (state, queue, priority, job_id, run_at)
    SELECT CASE WHEN run_at > now THEN 1 ELSE 0 END, queue, priority, id, run_at FROM r
)
SELECT min(now), json_agg(id ORDER BY id)::text FROM r;

-- name: enqueue_one
-- The same for one job, whose values need no JSON: half the server's time for it.
WITH r AS MATERIALIZED (
    SELECT nextval('{job_ids}') AS id, c.now, {:said typed}, :policy::smallint AS policy,
           :arguments::text AS arguments, :trace::text AS trace,
           greatest(c.now, coalesce(:at::bigint, c.now + coalesce(:delay::bigint, 0))) AS run_at
      FROM (SELECT coalesce(:now::bigint,
                            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) AS c
), chains AS (
    INSERT INTO {chain} (id, task, created_at, trace) SELECT id, task, now, trace FROM r
), jobs AS (
    INSERT INTO {job} (id, chain_id, position, {said}, blockers, policy, arguments, trace, created_at)
    SELECT id, id, 0, {said}, 0, policy, arguments, trace, now FROM r
), lives AS (
    INSERT INTO {live} (state, queue, priority, job_id, run_at)
    SELECT CASE WHEN run_at > now THEN 1 ELSE 0 END, queue, priority, id, run_at FROM r
)
SELECT now, id FROM r;

-- name: enqueue_laned
-- As enqueue_plain, for jobs with a lane, and what tells of them: those that are due wait in their lanes.
WITH c AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), r AS MATERIALIZED (
    SELECT nextval('{job_ids}') AS id, c.now, {r.said}, r.policy, a.arguments, r.trace, r.lane, r.weight,
           greatest(c.now, coalesce(r.at, c.now + coalesce(r.delay, 0))) AS run_at
      FROM c
     CROSS JOIN json_to_recordset(:runs::text::json)
        AS r({said typed}, policy smallint, trace text, at bigint, delay bigint, lane text, weight integer,
             arguments json)
     CROSS JOIN LATERAL json_array_elements_text(r.arguments) AS a(arguments)
), chains AS (
    INSERT INTO {chain} (id, task, created_at, trace) SELECT id, task, now, trace FROM r
), jobs AS (
    INSERT INTO {job} (id, chain_id, position, {said}, blockers, policy, arguments, trace, lane, weight, created_at)
    SELECT id, id, 0, {said}, 0, policy, arguments, trace, lane, weight, now FROM r
), lives AS (
    INSERT INTO {live} (state, queue, priority, job_id, run_at, lane, weight)
    SELECT CASE WHEN run_at > now THEN 1 WHEN lane IS NULL THEN 0 ELSE 4 END, queue, priority, id, run_at, lane, weight
      FROM r
), notes AS (
    INSERT INTO {note} (queue, lane, priority)
    SELECT queue, lane, max(priority) FROM r WHERE run_at <= now AND lane IS NOT NULL GROUP BY queue, lane
)
SELECT min(now), json_agg(id ORDER BY id)::text FROM r;

-- name: claim_chosen
-- Jobs that were chosen under the gate: from their lanes (4), or from a limited queue (0), to running; else as claim_pending.
-- One that somebody holds is left where it is.
WITH me AS MATERIALIZED (
    SELECT w.id FROM {worker} AS w WHERE w.id = :worker AND w.name = :name FOR KEY SHARE SKIP LOCKED
), r AS MATERIALIZED (
    SELECT l.ctid AS row, l.job_id
      FROM {live} AS l
     WHERE l.job_id = ANY (:jobs::text::bigint[]) AND l.state::integer IN (0, 4) AND l.parked_for IS NULL
       AND (:name::text IS NULL OR EXISTS (SELECT 1 FROM me))
       FOR UPDATE OF l SKIP LOCKED
), found AS (
    SELECT r.row, j.chain_id, j.position, j.task, j.arguments, {j.claimed}
      FROM r
     CROSS JOIN LATERAL (
           SELECT j.chain_id, j.position, j.task, j.arguments, {j.claimed}
             FROM {job} AS j WHERE j.id = r.job_id OFFSET 0) AS j
    OFFSET 0
)
UPDATE {live} AS l
   SET state = 3, attempt = l.attempt + 1, claimed_at = :now, worker = :worker, progress = NULL,
       progress_text = NULL, started_at = CASE WHEN l.lost < :safe::bigint THEN :now::bigint END
  FROM found AS f
 WHERE l.ctid = f.row AND l.state::integer IN (0, 4)
RETURNING l.job_id, l.attempt, l.queue, l.priority, f.chain_id, f.position, f.task, f.arguments,
          l.used, l.lost, {f.claimed}, l.run_at, l.claimed_at, l.worker;

-- ---------------------------------------------------------------- only here: lanes, which callers only write notes about

-- name: insert_notes
-- One for each lane and operation; nobody waits for anybody.
INSERT INTO {note} (queue, lane, priority, free, until)
SELECT queue, lane, priority, free, until
  FROM json_to_recordset(:rows::text::json)
    AS r(queue text, lane text, priority integer, free smallint, until bigint);

-- name: hold_gates
-- The gates of these queues, without waiting. Says of each that is there whether it is ours now.
WITH held AS MATERIALIZED (
    SELECT g.queue FROM {limit} AS g
     WHERE g.lane = '' AND g.queue = ANY (ARRAY(SELECT value FROM json_array_elements_text(:queues::text::json)))
     ORDER BY g.queue
       FOR NO KEY UPDATE OF g SKIP LOCKED
)
SELECT g.queue, (g.queue IN (SELECT h.queue FROM held AS h))::integer
  FROM {limit} AS g
 WHERE g.lane = '' AND g.queue = ANY (ARRAY(SELECT value FROM json_array_elements_text(:queues::text::json)));

-- name: hold_gate
-- The gate of a queue, for whoever changes its limits; a worker leaves the queue alone meanwhile.
SELECT g.queue FROM {limit} AS g WHERE g.queue = :queue AND g.lane = '' FOR NO KEY UPDATE OF g;

-- name: try_to_make_gate
-- Who makes the gate of a queue has this lock, so that nobody waits for the row of somebody who has not committed.
SELECT pg_try_advisory_xact_lock(hashtextextended(:queue::text, hashtext('{limit}')))::integer;

-- name: wait_to_make_gate
SELECT pg_advisory_xact_lock(hashtextextended(:queue::text, hashtext('{limit}')))::text;

-- name: make_gate
INSERT INTO {limit} (queue, lane) VALUES (:queue, '') ON CONFLICT (queue, lane) DO NOTHING;

-- name: collect_notes
-- Notes of queues whose gates are held, applied to their lanes: a bounded number of lanes, from where the gate remembers,
-- so that a flood in one hides no other, and of each lane a bounded number of notes; and lanes whose time has come. The
-- skip from lane to lane rides the key of note. Says of each queue whether something may be left.
WITH RECURSIVE g AS MATERIALIZED (
    SELECT g.queue, coalesce(g.collected, '') AS collected, g.turn
      FROM {limit} AS g
     WHERE g.lane = '' AND g.queue = ANY (ARRAY(SELECT value FROM json_array_elements_text(:queues::text::json)))
), w(queue, lane, n) AS (
    SELECT g.queue, (SELECT x.lane FROM {note} AS x WHERE x.queue = g.queue AND x.lane > g.collected
                      ORDER BY x.lane LIMIT 1), 1
      FROM g
    UNION ALL
    SELECT w.queue, (SELECT x.lane FROM {note} AS x WHERE x.queue = w.queue AND x.lane > w.lane
                      ORDER BY x.lane LIMIT 1), w.n + 1
      FROM w WHERE w.lane IS NOT NULL AND w.n < :lanes::integer
), taken AS MATERIALIZED (
    SELECT x.row, w.queue, w.lane, x.priority, x.free, x.until
      FROM w
     CROSS JOIN LATERAL (SELECT x.ctid AS row, x.priority, x.free, x.until FROM {note} AS x
                          WHERE x.queue = w.queue AND x.lane = w.lane
                          ORDER BY x.id LIMIT :notes::integer) AS x
     WHERE w.lane IS NOT NULL
), r AS MATERIALIZED (
    SELECT t.queue, t.lane, max(t.priority) AS priority, max(t.free) AS free, max(t.until) AS until,
           max(t.due) AS due
      FROM (SELECT queue, lane, priority, free, until, 0 AS due FROM taken
            UNION ALL
            SELECT g.queue, n.lane, NULL, NULL, NULL, 1
              FROM g
             CROSS JOIN LATERAL (SELECT n.lane FROM {lane} AS n
                                  WHERE n.closed > 0 AND n.queue = g.queue AND n.opens_at <= :now::bigint
                                  ORDER BY n.opens_at LIMIT :lanes::integer) AS n) AS t
     GROUP BY t.queue, t.lane
), known AS MATERIALIZED (
    SELECT r.*, n.row
      FROM r
      LEFT JOIN LATERAL (SELECT n.ctid AS row FROM {lane} AS n
                          WHERE n.queue = r.queue AND n.lane = r.lane OFFSET 0) AS n ON true
), changed AS (
    UPDATE {lane} AS n
       SET closed = CASE WHEN k.until > :now::bigint THEN 2
                         WHEN k.due = 1 OR (n.closed = 1 AND k.free = 1) OR (n.closed = 3 AND k.priority IS NOT NULL)
                         THEN 0 ELSE n.closed END,
           opens_at = CASE WHEN k.until > :now::bigint
                           THEN greatest(k.until, CASE WHEN n.closed = 2 THEN n.opens_at END)
                           WHEN k.due = 1 OR (n.closed = 1 AND k.free = 1)
                                OR (n.closed = 3 AND k.priority IS NOT NULL)
                           THEN NULL ELSE n.opens_at END,
           priority = CASE WHEN n.closed = 3 THEN coalesce(k.priority, n.priority)
                           ELSE greatest(n.priority, k.priority) END
      FROM known AS k
     WHERE n.ctid = k.row
), made AS (
    INSERT INTO {lane} (queue, lane, closed, priority, served_at, opens_at)
    SELECT k.queue, k.lane, CASE WHEN k.until > :now::bigint THEN 2 ELSE 0 END, coalesce(k.priority, 0),
           greatest(:now::bigint, g.turn), CASE WHEN k.until > :now::bigint THEN k.until END
      FROM known AS k JOIN g ON g.queue = k.queue
     WHERE k.row IS NULL AND (k.priority IS NOT NULL OR k.until > :now::bigint)
), gone AS (
    DELETE FROM {note} WHERE ctid = ANY (ARRAY(SELECT t.row FROM taken AS t))
), ends AS (
    SELECT g.queue, CASE WHEN count(w.lane) = :lanes::integer THEN max(w.lane) END AS collected,
           g.collected AS before
      FROM g JOIN w ON w.queue = g.queue GROUP BY g.queue, g.collected
), remembered AS (
    UPDATE {limit} AS l SET collected = e.collected
      FROM ends AS e
     WHERE l.queue = e.queue AND l.lane = '' AND coalesce(e.collected, '') <> e.before
)
SELECT e.queue, (e.collected IS NOT NULL OR e.before <> '')::integer FROM ends AS e;

-- ---------------------------------------------------------------- only here: rows that an operation holds

-- name: hold_running
-- What a worker wants to end: its rows in {live} (0) and, where one ends its chain, the chain's row (1).
WITH r AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:rows::text::json) AS r(job_id bigint, attempt integer, held_by bigint, chain_id bigint)
), held AS MATERIALIZED (
    SELECT l.job_id
      FROM (SELECT * FROM r ORDER BY job_id) AS r
     CROSS JOIN LATERAL (
           SELECT l.job_id
             FROM {live} AS l
            WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
              AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
              FOR UPDATE SKIP LOCKED) AS l
), chained AS MATERIALIZED (
    SELECT c.id
      FROM {chain} AS c
     WHERE c.id = ANY (ARRAY(SELECT r.chain_id FROM r))
     ORDER BY c.id
       FOR NO KEY UPDATE OF c SKIP LOCKED
)
SELECT 0, job_id, current_setting('transaction_isolation') FROM held
UNION ALL
SELECT 1, id, current_setting('transaction_isolation') FROM chained;

-- name: still_running
-- Which of these attempts are running all the same, though somebody else holds what they need.
SELECT r.n
  FROM json_to_recordset(:rows::text::json) AS r(n integer, job_id bigint, attempt integer, held_by bigint)
 CROSS JOIN LATERAL (
       SELECT 1
         FROM {live} AS l
        WHERE l.job_id = r.job_id AND l.attempt = r.attempt AND l.state::integer = 3
          AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)
       OFFSET 0) AS l;

-- name: hold_chains
-- Chains that are about to end, to open again, or to wait: nobody begins to wait for them meanwhile.
SELECT c.id, current_setting('transaction_isolation') FROM {chain} AS c
 WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
 ORDER BY c.id
   FOR NO KEY UPDATE OF c {wait};

-- name: share_chains
-- Chains that must stay as they are: somebody is about to wait for them.
SELECT c.id FROM {chain} AS c
 WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
 ORDER BY c.id
   FOR SHARE OF c {wait};

-- name: hold_doomed
-- Chains that are about to be deleted, as they stand.
SELECT c.id, c.state, c.created_at, c.ended_at, current_setting('transaction_isolation') FROM {chain} AS c
 WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
 ORDER BY c.id
   FOR UPDATE OF c {wait};

-- name: hold_keys
-- Keys of chains that end or go. Says of each chain that has its key whether the key's row is ours now: by
-- IN, which becomes a hash; a join would compare each with each, since of a CTE the planner expects one row.
WITH r AS MATERIALIZED (
    SELECT c.id, c.task, j.key
      FROM {chain} AS c
     CROSS JOIN LATERAL (SELECT j.key FROM {job} AS j WHERE j.id = c.id OFFSET 0) AS j
     WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
       AND j.key IS NOT NULL
), held AS MATERIALIZED (
    SELECT k.chain_id
      FROM (SELECT * FROM r ORDER BY task, key) AS r
     CROSS JOIN LATERAL (
           SELECT k.chain_id
             FROM {key} AS k
            WHERE k.task = r.task AND k.key = r.key AND k.chain_id = r.id
              FOR UPDATE {wait}) AS k
)
SELECT k.chain_id, (k.chain_id IN (SELECT h.chain_id FROM held AS h))::integer
  FROM r
 CROSS JOIN LATERAL (
       SELECT k.chain_id
         FROM {key} AS k
        WHERE k.task = r.task AND k.key = r.key AND k.chain_id = r.id
       OFFSET 0) AS k;

-- name: hold_key
-- A key that is to stand for one job, whatever its task: nobody else who says so stores one until the commit. By its
-- hash, since there may be no row yet; whose hash is the same waits as well, and loses nothing else.
SELECT pg_advisory_xact_lock(hashtextextended(:key::text, hashtext('{key}')))::text;

-- name: hold_blocked
-- Blocked jobs whose blockers end. Says of each whether its row is ours now, by a hash as well.
WITH held AS MATERIALIZED (
    SELECT l.job_id FROM {live} AS l
     WHERE l.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
       AND l.state::integer = 2
     ORDER BY l.job_id
       FOR UPDATE OF l SKIP LOCKED
)
SELECT l.job_id, (l.job_id IN (SELECT h.job_id FROM held AS h))::integer
  FROM {live} AS l
 WHERE l.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
   AND l.state::integer = 2;

-- name: hold_jobs
-- The rows of open jobs that somebody acts on from outside.
SELECT l.job_id FROM {live} AS l
 WHERE l.job_id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)))
 ORDER BY l.job_id
   FOR UPDATE OF l {wait};

-- name: hold_schedules
-- Schedules that somebody is about to change or to delete.
SELECT s.name FROM {schedule} AS s
 WHERE s.name = ANY (ARRAY(SELECT value FROM json_array_elements_text(:names::text::json)))
 ORDER BY s.name
   FOR UPDATE OF s {wait};

-- name: chains_of_jobs
SELECT DISTINCT j.chain_id, current_setting('transaction_isolation') FROM {job} AS j
 WHERE j.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:jobs::text::json)));

-- name: chains_of_keys
-- Which chains have these keys, holding none: they are held afterwards, in the order of their ids.
SELECT k.chain_id
  FROM json_to_recordset(:keys::text::json) AS r(task text, key text)
 CROSS JOIN LATERAL (SELECT k.chain_id FROM {key} AS k WHERE k.task = r.task AND k.key = r.key OFFSET 0) AS k;

-- name: hold_workers
-- Workers to be swept, unless they have renewed their lease meanwhile or are at work this moment.
SELECT w.id FROM {worker} AS w
 WHERE w.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:workers::text::json)))
   AND (w.lease_until <= :now
        OR w.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:gone::text::json))))
   FOR UPDATE OF w SKIP LOCKED;

-- name: is_registered
SELECT count(*) FROM {worker} WHERE id = :id AND name = :name;

-- name: notify
-- A hint for those who listen: one for each queue, and the server drops repeats within a transaction.
SELECT count(pg_notify(:channel, value)) FROM json_array_elements_text(:queues::text::json);

-- name: notify_alone
-- The same in a transaction of its own, whose loss would be harmless.
SELECT count(pg_notify(:channel, value)), set_config('synchronous_commit', 'off', true)
  FROM json_array_elements_text(:queues::text::json);

-- name: notify_one
-- The same for one queue.
SELECT pg_notify(:channel, :queue), set_config('synchronous_commit', 'off', true);

-- name: notify_ended
-- The same for those who wait for chains to end.
SELECT pg_notify(:channel, '');

-- name: create_schema
-- Only asked for when it is missing: even IF NOT EXISTS needs the right to create one.
CREATE SCHEMA IF NOT EXISTS "{schema}";

-- name: has_schema
SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '{schema}';

-- name: hold_schema
-- One at a time changes the schema; let go at the end of the transaction.
SELECT pg_advisory_xact_lock(:lock::bigint);

-- name: invalid_indexes
-- Those of these that a concurrent build left behind which failed: "IF NOT EXISTS" would take them for good.
SELECT c.relname
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
 WHERE NOT i.indisvalid AND s.nspname = '{schema}'
   AND c.relname IN (SELECT value FROM json_array_elements_text(:names::text::json));
