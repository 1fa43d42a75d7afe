-- Every statement of the SQLite engine. The PostgreSQL brother of this file has the same names in the
-- same order, so that a diff of the two is the document of the dialects. Order: write, worker, upkeep,
-- read, control. A row of {live} is addressed by its whole key (state, queue, priority, job_id), which
-- is its clustered primary key: by job_id alone it would be a scan. Its state is a literal or +:state: a
-- bare parameter makes SQLite look whether the bound value fits a partial index, and prepare the whole
-- statement again for every row (12 µs). All of it runs under the one writer lock of the database
-- (BEGIN IMMEDIATE), so nothing here locks rows.
--
-- No plan may depend on statistics: the application may ANALYZE an empty database and then fill it, which
-- makes every index look as good as the right one. Hence the fences. NOT INDEXED: by rowid only. `= +4`:
-- no partial index. `4 + 0 * j.id`: a state that seems to depend on the job; by literals alone SQLite reads
-- all of {live} into a Bloom filter before it looks up the first row.

-- Columns that go together are named once, here: {stored} is the list, {j.stored} the same of table j,
-- {:stored} the parameters of these names.
--
-- columns: stored = id, chain_id, position, task, label, queue, priority, max_attempts, timeout, key,
--     blockers, policy, arguments, trace, created_at
-- columns: claimed = max_attempts, timeout, key, label, blockers, trace, created_at
-- columns: opened = state, queue, priority, job_id, attempt, open_blockers, run_at
-- columns: standing = state, attempt, used, lost, open_blockers, run_at, started_at, progress,
--     progress_text
-- columns: tried = job_id, number, outcome, final, worker, started_at, ended_at, output, error, error_type,
--     progress, progress_text
-- columns: registered = id, name, host, pid, birth, version, queues, concurrency, started_at, seen_at,
--     lease_until
-- columns: counted = minute, queue, task, outcome, slot, ended, removed, duration, h0, h1, h2, h3, h4, h5,
--     h6, h7

-- ---------------------------------------------------------------- write

-- name: next_job_id
-- The lowest id that was never given out and kept: above every stored job and every deleted one.
SELECT max(coalesce((SELECT max(id) FROM {job} NOT INDEXED), 0),
           coalesce((SELECT value FROM {mark} WHERE name = 'job_id'), 0)) + 1;

-- name: chain_states
-- State and age of the chains somebody wants to wait for. Rides the primary key of chain.
SELECT c.id, c.state, c.created_at
  FROM json_each(:chains) AS x CROSS JOIN {chain} AS c ON c.id = x.value;

-- name: take_key
-- Give the key to a new chain, unless one in scope has it: an open chain always is, an ended one until
-- it is older than :expired (no limit for scope "open"). One row changed: the key is ours.
INSERT INTO {key} (task, key, chain_id, created_at)
VALUES (:task, :key, :chain_id, :now)
ON CONFLICT (task, key) DO UPDATE
   SET chain_id = excluded.chain_id, created_at = excluded.created_at, ended_at = NULL
 WHERE ended_at IS NOT NULL AND created_at <= :expired;

-- name: read_key
-- Who has the key.
SELECT k.chain_id
  FROM {key} AS k CROSS JOIN {chain} AS c ON c.id = k.chain_id
 WHERE k.task = :task AND k.key = :key;

-- name: insert_chains
INSERT INTO {chain} (id, task, created_at, trace)
VALUES (:id, :task, :created_at, :trace);

-- name: insert_jobs
INSERT INTO {job} ({stored})
VALUES ({:stored});

-- name: insert_live
INSERT INTO {live} ({opened})
VALUES ({:opened});

-- name: insert_blockers
INSERT INTO {blocker} (chain_id, job_id, position, name, trace)
VALUES (:chain_id, :job_id, :position, :name, :trace);

-- name: find_upstream
-- These chains, and all that they wait for in turn. Follows the last job of each chain while it is
-- blocked, or, when a chain is opened again (:reopened), while it may be blocked again; rides job_chain,
-- the key of live and blocker_job.
WITH RECURSIVE up(chain_id) AS (
    SELECT value FROM json_each(:chains)
    UNION
    SELECT b.chain_id
      FROM up
     CROSS JOIN {job} AS j NOT INDEXED ON j.id = coalesce(
           (SELECT k.id FROM {job} AS k INDEXED BY {prefix}job_chain
             WHERE k.chain_id = up.chain_id AND k.position > 0 ORDER BY k.position DESC LIMIT 1),
           up.chain_id)
     CROSS JOIN {live} AS l ON l.state IN (0, 1, 2, 4 + 0 * j.id) AND l.queue = j.queue
                           AND l.priority = j.priority AND l.job_id = j.id
                           AND (l.state = 2 + 0 * j.id OR :reopened)
     CROSS JOIN {blocker} AS b INDEXED BY {prefix}blocker_job ON b.job_id = j.id
)
SELECT chain_id FROM up;

-- name: replace_arguments
-- The one update of a job's row: on_conflict="replace" before the first start.
UPDATE {job} SET arguments = :arguments WHERE id = :job_id;

-- name: move_waiting
-- A job that is not running changes its state or its time.
UPDATE {live} SET state = :state, run_at = :run_at, open_blockers = :open_blockers, parked_for = NULL
 WHERE state = +:was AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- ---------------------------------------------------------------- worker

-- name: record_attempts
-- The fence of every ending: no row is written unless the job still runs under this attempt number and for
-- this worker (a database that lost its last commits gives a number out again), nor a second one for an
-- attempt that one turn was told of twice. Who ends a job from outside holds it and names no worker.
INSERT INTO {attempt} ({tried}, continued_by, ended_by)
SELECT job_id, attempt, :outcome, :final, :worker, coalesce(:started_at, started_at, claimed_at), :now, :output,
       :error, :error_type, progress, progress_text, :continued_by, :ended_by
  FROM {live}
 WHERE state = 3 AND queue = :queue AND priority = :priority AND job_id = :job_id
   AND attempt = :attempt AND worker IS coalesce(:held_by, worker)
ON CONFLICT (job_id, number) DO NOTHING;

-- name: record_waiting_end
-- A job that ends without a run: the next number, no start. Fenced by the state it was seen in.
INSERT INTO {attempt} (job_id, number, outcome, final, started_at, ended_at, output, error, blocker,
                       continued_by, ended_by, run_at)
SELECT job_id, attempt + 1, :outcome, 1, NULL, :now, :output, :error, :blocker, :continued_by, :ended_by,
       run_at
  FROM {live}
 WHERE state = +:state AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: delete_live
-- The job is no longer open.
DELETE FROM {live}
 WHERE state = +:state AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: put_back
-- running → pending or scheduled. Fenced; the attempt number stays, so it is never given out again.
UPDATE {live}
   SET state = :state, run_at = :run_at, used = :used, lost = :lost, claimed_at = NULL,
       started_at = NULL, worker = NULL, progress = NULL, progress_text = NULL
 WHERE state = 3 AND queue = :queue AND priority = :priority AND job_id = :job_id
   AND attempt = :attempt AND worker IS coalesce(:held_by, worker);

-- name: park_jobs
-- running → parked, for a reason such as task:NAME, which the worker does not know. Fenced.
UPDATE {live}
   SET state = 4, parked_for = :parked_for, claimed_at = NULL, started_at = NULL, worker = NULL
 WHERE state = 3 AND queue = :queue AND priority = :priority AND job_id = :job_id
   AND attempt = :attempt AND worker IS coalesce(:held_by, worker);

-- name: find_parked
-- Parked jobs whose reason is gone, in queues a worker serves. Rides live_parked.
SELECT queue, priority, job_id
  FROM {live} INDEXED BY {prefix}live_parked
 WHERE state = 4 AND parked_for IN (SELECT value FROM json_each(:reasons))
   AND queue IN (SELECT value FROM json_each(:queues))
 LIMIT :limit;

-- name: unpark_jobs
UPDATE {live} SET state = 0, parked_for = NULL
 WHERE state = +4 AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: next_due
-- When the next scheduled job is due. Rides live_due.
SELECT min(run_at) FROM {live} INDEXED BY {prefix}live_due WHERE state = 1;

-- name: peek_pending
-- How many pending jobs the queues have that are not paused, no more than :most of each are counted; and
-- whether a job is parked for one of these reasons, which is one probe where none is.
SELECT coalesce(sum((SELECT count(*)
                       FROM (SELECT 1 FROM {live} AS l WHERE l.state = 0 AND l.queue = q.value LIMIT :most))), 0),
       EXISTS (SELECT 1 FROM {live} WHERE state = +4)
       AND EXISTS (SELECT 1 FROM {live} INDEXED BY {prefix}live_parked
                    WHERE state = 4 AND parked_for IN (SELECT value FROM json_each(:reasons))
                      AND queue IN (SELECT value FROM json_each(:queues)))
  FROM json_each(:queues) AS q
 WHERE q.value NOT IN (SELECT name FROM {queue});

-- name: find_orphans
-- Of the next jobs to claim, rows that have lost their job: somebody deleted it by hand.
SELECT 0, r.queue, r.priority, r.job_id
  FROM (SELECT queue, priority, job_id
          FROM {live}
         WHERE state = 0 AND queue IN (SELECT value FROM json_each(:queues))
         ORDER BY priority DESC, job_id
         LIMIT :limit) AS r
 WHERE NOT EXISTS (SELECT 1 FROM {job} AS j NOT INDEXED WHERE j.id = r.job_id);

-- name: record_begins
-- Jobs that were claimed ahead and have begun. Fenced.
UPDATE {live} SET started_at = :started_at
 WHERE state = 3 AND queue = :queue AND priority = :priority AND job_id = :job_id
   AND attempt = :attempt AND worker IS coalesce(:held_by, worker);

-- name: record_progress
-- Fenced like an ending.
UPDATE {live} SET progress = :progress, progress_text = :text
 WHERE state = 3 AND queue = :queue AND priority = :priority AND job_id = :job_id
   AND attempt = :attempt AND worker IS coalesce(:held_by, worker);

-- name: end_chains
UPDATE {chain} SET state = :state, ended_at = :now WHERE id = :id AND state = 0;

-- name: end_keys
-- A key belongs to the task of the chain's first job.
UPDATE {key} SET ended_at = :now
 WHERE task = (SELECT task FROM {chain} WHERE id = :chain_id) AND key = :key AND chain_id = :chain_id;

-- name: find_dependents
-- Jobs behind these chains, with the key of their live row. Rides the primary keys of blocker and job.
SELECT b.chain_id, b.job_id, j.chain_id, j.queue, j.priority, j.policy, j.task, j.key, b.name
  FROM json_each(:chains) AS x
 CROSS JOIN {blocker} AS b ON b.chain_id = x.value
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = b.job_id;

-- name: unblock_jobs
-- A job waits for open_blockers chains; each end subtracts its share. At zero it is due, or scheduled
-- when its time has not come. Never "is any blocker left?".
UPDATE {live}
   SET open_blockers = open_blockers - :ended,
       state = CASE WHEN open_blockers > :ended THEN 2 WHEN run_at > :now THEN 1 ELSE 0 END
 WHERE state = 2 AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: add_rollups
-- Ended jobs of this minute; one row per writer (slot), so that writers do not meet.
INSERT INTO {rollup} ({counted})
VALUES ({:counted})
ON CONFLICT (minute, queue, task, outcome, slot) DO UPDATE
   SET ended = ended + excluded.ended, removed = removed + excluded.removed,
       duration = duration + excluded.duration,
       h0 = h0 + excluded.h0, h1 = h1 + excluded.h1, h2 = h2 + excluded.h2, h3 = h3 + excluded.h3,
       h4 = h4 + excluded.h4, h5 = h5 + excluded.h5, h6 = h6 + excluded.h6, h7 = h7 + excluded.h7;

-- name: insert_worker
INSERT INTO {worker} ({registered})
VALUES (:id, :name, :host, :pid, :birth, :version, :queues, :concurrency, :now, :now, :lease_until);

-- name: renew_worker
-- One row carries the lease of everything the worker holds.
UPDATE {worker} SET seen_at = :now, lease_until = :lease_until WHERE id = :id AND name = :name;

-- name: find_running_of
-- What runs in a worker's name. Walks the running rows only.
SELECT l.job_id, l.attempt, l.queue, l.priority, l.used, l.lost
  FROM {live} AS l
 WHERE l.state = 3 AND l.worker = :worker;

-- ---------------------------------------------------------------- upkeep

-- name: find_expired_workers
SELECT id FROM {worker} WHERE lease_until <= :now;

-- name: find_lost
-- Running jobs of workers that are dead (:dead) or no longer registered. Walks the running rows only.
-- Last, whether the job itself is gone: somebody deleted it by hand.
SELECT l.job_id, l.attempt, l.queue, l.priority, j.chain_id, j.position, j.task, '', l.used, l.lost,
       {j.claimed}, l.claimed_at, l.worker, w.name, j.chain_id IS NULL
  FROM (SELECT job_id, attempt, queue, priority, used, lost, claimed_at, worker
          FROM {live}
         WHERE state = 3
           AND coalesce(worker, 0) NOT IN (SELECT id FROM {worker}
                                            WHERE id NOT IN (SELECT value FROM json_each(:dead)))
         LIMIT :limit) AS l
  LEFT JOIN {job} AS j NOT INDEXED ON j.id = l.job_id
  LEFT JOIN {worker} AS w ON w.id = l.worker;

-- name: remove_workers
-- A worker's row goes when nothing runs in its name any more.
DELETE FROM {worker}
 WHERE id IN (SELECT value FROM json_each(:workers))
   AND id NOT IN (SELECT worker FROM {live} WHERE state = 3 AND worker IS NOT NULL);

-- name: read_mark
SELECT value FROM {mark} WHERE name = :name;

-- name: set_mark
INSERT INTO {mark} (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: keep_job_id
-- Remember the highest id ever used before its row goes: an id is not given out again.
INSERT INTO {mark} (name, value) SELECT 'job_id', coalesce(max(id), 0) FROM {job} NOT INDEXED WHERE true
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);

-- name: walk_old_chains
-- Retention reads the chains by primary key, a bounded batch at a time.
SELECT id, state, created_at, ended_at FROM {chain} WHERE id > :position ORDER BY id LIMIT :limit;

-- name: find_needed
-- Which of these chains somebody may still ask for the output of: a dependent that is open, or one that
-- failed or was cancelled and could be retried.
SELECT DISTINCT b.chain_id
  FROM json_each(:chains) AS x
 CROSS JOIN {blocker} AS b ON b.chain_id = x.value
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = b.job_id
 CROSS JOIN {chain} AS c ON c.id = j.chain_id
 WHERE c.state <> 1 AND j.chain_id NOT IN (SELECT value FROM json_each(:chains));

-- name: count_later_jobs
-- How many jobs these chains have beside their first, where they have any. Rides job_chain.
SELECT j.chain_id, count(*)
  FROM json_each(:chains) AS x
 CROSS JOIN {job} AS j INDEXED BY {prefix}job_chain ON j.chain_id = x.value AND j.position > 0
 GROUP BY j.chain_id;

-- name: inner_jobs
-- The oldest jobs of a chain behind its first. Rides job_chain.
SELECT j.id FROM {job} AS j INDEXED BY {prefix}job_chain
 WHERE j.chain_id = :chain_id AND j.position > 0 ORDER BY j.position LIMIT :limit;

-- name: count_ended_of
-- The ended jobs of chains about to go, for the roll-up.
SELECT j.queue, j.task, a.outcome, count(*)
  FROM json_each(:jobs) AS x
 CROSS JOIN {attempt} AS a ON a.job_id = x.value
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value
 WHERE a.final = 1
 GROUP BY 1, 2, 3;

-- name: delete_attempts
DELETE FROM {attempt} WHERE job_id = :job_id;

-- name: open_keys
-- The whole keys of those of these jobs that are open: five probes each, never a scan.
SELECT l.state, l.queue, l.priority, l.job_id
  FROM json_each(:jobs) AS x
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value
 CROSS JOIN {live} AS l ON l.state IN (0, 1, 2, 3, 4 + 0 * j.id) AND l.queue = j.queue
                       AND l.priority = j.priority AND l.job_id = j.id;

-- name: delete_edges
DELETE FROM {blocker} WHERE chain_id = :chain_id;

-- name: delete_edges_of_jobs
DELETE FROM {blocker} INDEXED BY {prefix}blocker_job WHERE job_id = :job_id;

-- name: delete_keys
DELETE FROM {key}
 WHERE task = (SELECT task FROM {chain} WHERE id = :chain_id) AND key = :key AND chain_id = :chain_id;

-- name: delete_jobs
DELETE FROM {job} WHERE id = :id;

-- name: delete_chains
DELETE FROM {chain} WHERE id = :id;

-- name: fold_rollups
-- Rows older than :before, made coarser: one per :unit minutes, without slots.
INSERT INTO {rollup} ({counted})
SELECT minute / :unit * :unit, queue, task, outcome, -1, sum(ended), sum(removed), sum(duration),
       sum(h0), sum(h1), sum(h2), sum(h3), sum(h4), sum(h5), sum(h6), sum(h7)
  FROM {rollup}
 WHERE minute < :before AND NOT (slot = -1 AND minute % :unit = 0)
 GROUP BY 1, 2, 3, 4
ON CONFLICT (minute, queue, task, outcome, slot) DO UPDATE
   SET ended = ended + excluded.ended, removed = removed + excluded.removed,
       duration = duration + excluded.duration,
       h0 = h0 + excluded.h0, h1 = h1 + excluded.h1, h2 = h2 + excluded.h2, h3 = h3 + excluded.h3,
       h4 = h4 + excluded.h4, h5 = h5 + excluded.h5, h6 = h6 + excluded.h6, h7 = h7 + excluded.h7;

-- name: drop_folded_rollups
DELETE FROM {rollup} WHERE minute < :before AND NOT (slot = -1 AND minute % :unit = 0);

-- ---------------------------------------------------------------- read

-- name: job_records
-- Jobs as they stand: primary keys only, five probes for the live row, one for the last attempt.
SELECT {j.stored},
       {l.standing}, w.name, l.worker, l.parked_for,
       a.number, a.outcome, a.worker, a.started_at, a.ended_at, a.output, a.error,
       a.progress, a.progress_text, a.blocker, a.continued_by, a.ended_by, a.run_at,
       a.error_type
  FROM json_each(:ids) AS x
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value
  LEFT JOIN {live} AS l ON l.state IN (0, 1, 2, 3, 4 + 0 * j.id) AND l.queue = j.queue
                       AND l.priority = j.priority AND l.job_id = j.id
  LEFT JOIN {attempt} AS a ON a.job_id = j.id
                          AND a.number = (SELECT max(m.number) FROM {attempt} AS m WHERE m.job_id = j.id)
  LEFT JOIN {worker} AS w ON w.id = l.worker;

-- name: chain_records
SELECT c.id, c.task, c.state, c.created_at, c.ended_at, c.trace, j.label, j.key
  FROM json_each(:ids) AS x
 CROSS JOIN {chain} AS c ON c.id = x.value
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = c.id;

-- name: chain_tail
-- The last job of a chain: the highest position, or the first job itself.
SELECT coalesce((SELECT id FROM {job} INDEXED BY {prefix}job_chain
                  WHERE chain_id = :chain_id AND position > 0 ORDER BY position DESC LIMIT 1),
                (SELECT id FROM {job} NOT INDEXED WHERE id = :chain_id));

-- name: chain_job_ids
-- All jobs of these chains; the first has the chain's own id.
SELECT j.id, j.chain_id, j.key
  FROM json_each(:chains) AS x CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value
UNION ALL
SELECT j.id, j.chain_id, j.key
  FROM json_each(:chains) AS x
 CROSS JOIN {job} AS j INDEXED BY {prefix}job_chain ON j.chain_id = x.value AND j.position > 0;

-- name: list_attempts
-- Ended attempts of a job and the one that runs, oldest first.
SELECT {a.tried}, a.ended_by
  FROM {attempt} AS a WHERE a.job_id = :job_id
UNION ALL
SELECT l.job_id, l.attempt, 0, NULL, w.name, l.started_at, NULL, NULL, NULL, NULL, l.progress,
       l.progress_text, NULL
  FROM {job} AS j
 CROSS JOIN {live} AS l ON l.state = 3 + 0 * j.id AND l.queue = j.queue AND l.priority = j.priority
                       AND l.job_id = j.id
  LEFT JOIN {worker} AS w ON w.id = l.worker
 WHERE j.id = :job_id AND l.started_at IS NOT NULL
 ORDER BY 2;

-- name: list_blockers
-- What these jobs wait for, in declared order, with the output or error of each chain's last job.
SELECT b.job_id, b.position, b.name, b.chain_id, c.state, t.task, a.output, a.error, b.trace
  FROM json_each(:jobs) AS x
 CROSS JOIN {blocker} AS b INDEXED BY {prefix}blocker_job ON b.job_id = x.value
 CROSS JOIN {chain} AS c ON c.id = b.chain_id
  LEFT JOIN {job} AS t NOT INDEXED ON t.id = coalesce(
       (SELECT k.id FROM {job} AS k INDEXED BY {prefix}job_chain
         WHERE k.chain_id = c.id AND k.position > 0 ORDER BY k.position DESC LIMIT 1), c.id)
  LEFT JOIN {attempt} AS a ON a.job_id = t.id
                          AND a.number = (SELECT max(m.number) FROM {attempt} AS m WHERE m.job_id = t.id)
 ORDER BY b.job_id, b.position;

-- name: list_workers
SELECT {registered}
  FROM {worker} ORDER BY id;

-- name: list_paused
SELECT name, paused_at, paused_by FROM {queue} ORDER BY name;

-- name: count_before
-- How many pending jobs of the queue are claimed before this one, no more than :most are counted. Rides the
-- key of live, twice.
SELECT count(*)
  FROM (SELECT 1 FROM (SELECT 1 FROM {live} AS l
                        WHERE l.state = 0 AND l.queue = :queue AND l.priority > :priority LIMIT :most)
        UNION ALL
        SELECT 1 FROM (SELECT 1 FROM {live} AS l
                        WHERE l.state = 0 AND l.queue = :queue AND l.priority = :priority
                          AND l.job_id < :job_id LIMIT :most)
        LIMIT :most);

-- name: live_lanes
-- The (queue, priority) groups of one state, by probing from one to the next: cost grows with groups.
-- ORDER BY … LIMIT 1 and not min() or max(), which read on when statistics say that a row is all there is.
WITH RECURSIVE q(queue) AS (
    SELECT queue FROM (SELECT queue FROM {live} WHERE state = +:state ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT l.queue FROM {live} AS l WHERE l.state = +:state AND l.queue > q.queue
             ORDER BY l.queue LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL
), p(queue, priority) AS (
    SELECT q.queue, (SELECT l.priority FROM {live} AS l WHERE l.state = +:state AND l.queue = q.queue
                      ORDER BY l.priority DESC LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL
    UNION ALL
    SELECT p.queue, (SELECT l.priority FROM {live} AS l
                      WHERE l.state = +:state AND l.queue = p.queue AND l.priority < p.priority
                      ORDER BY l.priority DESC LIMIT 1)
      FROM p WHERE p.priority IS NOT NULL
)
SELECT queue, priority FROM p WHERE priority IS NOT NULL;

-- name: job_lanes
-- The (queue, task) groups ever used, by probing job_lane.
WITH RECURSIVE q(queue) AS (
    SELECT min(queue) FROM {job} INDEXED BY {prefix}job_lane
    UNION ALL
    SELECT (SELECT min(j.queue) FROM {job} AS j INDEXED BY {prefix}job_lane WHERE j.queue > q.queue)
      FROM q WHERE q.queue IS NOT NULL
), t(queue, task) AS (
    SELECT q.queue, (SELECT min(j.task) FROM {job} AS j INDEXED BY {prefix}job_lane WHERE j.queue = q.queue)
      FROM q WHERE q.queue IS NOT NULL
    UNION ALL
    SELECT t.queue, (SELECT min(j.task) FROM {job} AS j INDEXED BY {prefix}job_lane
                      WHERE j.queue = t.queue AND j.task > t.task)
      FROM t WHERE t.task IS NOT NULL
)
SELECT queue, task FROM t WHERE task IS NOT NULL;

-- The walks below give job ids past a cursor in one direction, at most :limit of them. Each exists
-- twice: _newest (descending) and _oldest (ascending).

-- name: walk_jobs
SELECT id FROM {job} NOT INDEXED WHERE id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_lane
SELECT id FROM {job} INDEXED BY {prefix}job_lane
 WHERE queue = :queue AND task = :task AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_live
SELECT job_id FROM {live}
 WHERE state = +:state AND queue = :queue AND priority = :priority AND job_id {past} :cursor
 ORDER BY job_id {direction} LIMIT :limit;

-- name: walk_bad
SELECT job_id FROM {attempt} INDEXED BY {prefix}attempt_bad
 WHERE final = 1 AND outcome NOT IN (1, 2) AND job_id {past} :cursor
 ORDER BY job_id {direction} LIMIT :limit;

-- name: walk_tried
-- Jobs with an ended attempt.
SELECT job_id FROM {attempt} WHERE job_id {past} :cursor
 GROUP BY job_id ORDER BY job_id {direction} LIMIT :limit;

-- name: walk_label
SELECT id FROM {job} INDEXED BY {prefix}job_label
 WHERE label = :label AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_key
SELECT id FROM {job} INDEXED BY {prefix}job_key
 WHERE key = :key AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_chain_jobs
SELECT id FROM {job} NOT INDEXED WHERE id = :chain_id AND id {past} :cursor
UNION ALL
SELECT id FROM {job} INDEXED BY {prefix}job_chain
 WHERE chain_id = :chain_id AND position > 0 AND id {past} :cursor
 ORDER BY id {direction} LIMIT :limit;

-- name: walk_chains
SELECT id FROM {chain} WHERE id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_bad_chains
SELECT id FROM {chain} INDEXED BY {prefix}chain_bad
 WHERE state IN (2, 3) AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: count_live
-- All open jobs: without a WHERE it adds up page headers.
SELECT count(*) FROM {live};

-- name: open_chain_ids
-- Chains of all open jobs; asked only when they are few.
SELECT j.chain_id
  FROM {live} AS l CROSS JOIN {job} AS j NOT INDEXED ON j.id = l.job_id;

-- name: id_bounds
SELECT coalesce((SELECT min(id) FROM {job} NOT INDEXED), 1), coalesce((SELECT max(id) FROM {job} NOT INDEXED), 0);

-- name: created_near
-- When the first job at or after an id was created, to find an id by time.
SELECT id, created_at FROM {job} NOT INDEXED WHERE id >= :id ORDER BY id LIMIT 1;

-- name: count_lane
-- Open jobs of a state and queue, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM {live} WHERE state = +:state AND queue = :queue LIMIT :limit);

-- name: count_lanes
-- Open jobs of a state by queue, where there are very many queues; counted up to a limit in all.
SELECT queue, count(*)
  FROM (SELECT queue FROM {live} WHERE state = +:state LIMIT :limit) GROUP BY queue;

-- name: count_ahead
-- Jobs of a queue that were claimed ahead and have not begun. Walks the running rows only.
SELECT count(*)
  FROM (SELECT 1 FROM {live} WHERE state = 3 AND queue = :queue AND started_at IS NULL LIMIT :limit);

-- name: sum_rollups
SELECT queue, outcome, sum(ended - removed) FROM {rollup} GROUP BY queue, outcome;

-- name: read_rollups
-- Jobs that ended in a range of minutes, by bucket of :unit minutes. A range of the primary key.
SELECT minute / :unit * :unit, queue, task, outcome, sum(ended), sum(duration),
       sum(h0), sum(h1), sum(h2), sum(h3), sum(h4), sum(h5), sum(h6), sum(h7)
  FROM {rollup}
 WHERE minute >= :since AND minute < :until AND ended > 0
   AND (:queue IS NULL OR queue = :queue)
   AND (:task IS NULL OR task = :task)
   AND (:outcome IS NULL OR outcome = :outcome)
 GROUP BY 1, 2, 3, 4
 ORDER BY 1, 2, 3, 4;

-- name: group_failures
-- What failed for good, by task and kind of error, of the newest :limit jobs before :cursor that ended badly: how many of
-- those were looked at, how many fit, the first and the last time, the newest job. Index attempt_bad.
SELECT task, outcome, error_type, count(*), sum(fits),
       min(CASE WHEN fits THEN ended_at END), max(CASE WHEN fits THEN ended_at END),
       max(CASE WHEN fits THEN job_id END)
  FROM (SELECT a.job_id, a.outcome, a.error_type, a.ended_at, j.task,
               a.outcome <> 6 AND a.ended_at >= :since AND a.ended_at < :until
               AND (:queue IS NULL OR j.queue = :queue)
               AND (:task IS NULL OR j.task = :task) AS fits
          FROM (SELECT job_id, outcome, error_type, ended_at
                  FROM {attempt} INDEXED BY {prefix}attempt_bad
                 WHERE final = 1 AND outcome NOT IN (1, 2) AND job_id < :cursor
                 ORDER BY job_id DESC LIMIT :limit) AS a
         CROSS JOIN {job} AS j ON j.id = a.job_id) AS newest
 GROUP BY 1, 2, 3;

-- ---------------------------------------------------------------- control

-- name: clear_final
-- Retry: the old last attempt no longer ends the job.
UPDATE {attempt} SET final = NULL WHERE job_id = :job_id AND number = :number;

-- name: insert_attempt
-- An ending from outside, beside the attempt it cut short.
INSERT INTO {attempt} (job_id, number, outcome, final, ended_at, output, error, continued_by, ended_by)
VALUES (:job_id, :number, :outcome, 1, :now, :output, :error, :continued_by, :ended_by);

-- name: reopen_chain
UPDATE {chain} SET state = 0, ended_at = NULL WHERE id = :id;

-- name: blocker_states
-- What these jobs wait or waited for, and how it stands.
SELECT b.job_id, b.chain_id, c.state
  FROM json_each(:jobs) AS x
 CROSS JOIN {blocker} AS b INDEXED BY {prefix}blocker_job ON b.job_id = x.value
 CROSS JOIN {chain} AS c ON c.id = b.chain_id;

-- name: block_again
-- A blocker that had ended is open again: whoever has not begun waits for it again.
UPDATE {live} SET state = 2, open_blockers = :open_blockers, parked_for = NULL
 WHERE state = +:state AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: blockers_of_jobs
-- Every chain these jobs wait for: what a cascade follows, also from continuations.
SELECT DISTINCT b.chain_id
  FROM json_each(:jobs) AS x
 CROSS JOIN {blocker} AS b INDEXED BY {prefix}blocker_job ON b.job_id = x.value;

-- name: find_waiting_outside
-- Open jobs that wait for these chains and do not belong to them.
SELECT DISTINCT b.chain_id, b.job_id
  FROM json_each(:chains) AS x
 CROSS JOIN {blocker} AS b ON b.chain_id = x.value
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = b.job_id
 CROSS JOIN {live} AS l ON l.state IN (0, 1, 2, 3, 4 + 0 * j.id) AND l.queue = j.queue
                       AND l.priority = j.priority AND l.job_id = j.id
 WHERE j.chain_id NOT IN (SELECT value FROM json_each(:chains))
 ORDER BY b.job_id;

-- name: pause_queue
INSERT INTO {queue} (name, paused_at, paused_by) VALUES (:name, :now, :by)
ON CONFLICT (name) DO NOTHING;

-- name: resume_queue
DELETE FROM {queue} WHERE name = :name;

-- ---------------------------------------------------------------- schema

-- name: clock
-- The time that decides, for text that others run; the store asks its host.
SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER);

-- name: has_tables
-- Also in a file that the caller has attached.
SELECT count(*) > 0 FROM pragma_table_info('{migration}');

-- name: find_prefixes
-- How the names of tables like ours begin: for whoever looks with a wrong prefix.
SELECT substr(m.name, 1, length(m.name) - 9), '' FROM sqlite_master m
WHERE m.type = 'table' AND substr(m.name, -9) = 'migration' AND EXISTS (
    SELECT 1 FROM sqlite_master l
    WHERE l.type = 'table' AND l.name = substr(m.name, 1, length(m.name) - 9) || 'live'
)
ORDER BY 1;

-- name: find_relations
-- Those of these tables and views that are there, and what each is: `towline bench` has some of its own.
SELECT name, type FROM sqlite_master
WHERE type IN ('table', 'view') AND name IN (SELECT value FROM json_each(:names)) ORDER BY name;

-- name: engine_version
SELECT sqlite_version();

-- name: list_migrations
SELECT name FROM {migration} ORDER BY name;

-- name: record_migration
INSERT INTO {migration} (name, applied_at) VALUES (:name, :now);

-- name: describe_database
-- What doctor cannot know otherwise: how many pages of the file are free.
PRAGMA freelist_count;

-- ---------------------------------------------------------------- only here: claiming in two steps

-- name: find_due
-- Scheduled jobs whose time has come. Rides live_due.
SELECT queue, priority, job_id
  FROM {live} INDEXED BY {prefix}live_due
 WHERE state = 1 AND run_at <= :now
 ORDER BY run_at
 LIMIT :limit;

-- name: promote_jobs
UPDATE {live} SET state = 0
 WHERE state = +1 AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: find_pending
-- The next jobs in order of claiming. For each queue a range of the clustered key, stopped as soon as
-- :room rows are found; never a sort of the backlog. A paused queue is left out. A worker that gives its
-- name must still be registered: what a swept one claims would count as lost. Long arguments are left out:
-- a text has a limit, and together they may be longer.
SELECT json_group_array(json_array(
           r.job_id, r.attempt + 1, r.queue, r.priority, j.chain_id, j.position, j.task,
           CASE WHEN length(j.arguments) <= 4096 THEN j.arguments ELSE '' END,
           r.used, r.lost, {j.claimed}, :now, :worker))
  FROM (SELECT job_id, attempt, queue, priority, used, lost
          FROM {live}
         WHERE state = 0
           AND (:name IS NULL OR EXISTS (SELECT 1 FROM {worker} WHERE id = :worker AND name = :name))
           AND queue IN (SELECT value FROM json_each(:queues)
                          WHERE value NOT IN (SELECT name FROM {queue}))
         ORDER BY priority DESC, job_id
         LIMIT :room) AS r
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = r.job_id;

-- ---------------------------------------------------------------- only here: many at once
-- What a worker's turn does to most of its jobs. A statement for each row would be as quick, but the
-- interpreter is locked and unlocked around each, and around each row that is read, and threads with
-- handlers take it in between. So each is one statement for all that have queue and priority in common,
-- and what is read is one value.

-- name: claim_jobs
-- pending → running; the attempt number is the fence and only ever grows. Those up to :free begin at once,
-- but not one that the next loss would fail.
UPDATE {live}
   SET state = 3, attempt = attempt + 1, claimed_at = :now,
       started_at = CASE WHEN job_id <= :free AND lost < :safe THEN :now END, worker = :worker,
       progress = NULL, progress_text = NULL
 WHERE state = 0 AND queue = :queue AND priority = :priority
   AND job_id IN (SELECT value FROM json_each(:jobs));

-- name: long_arguments
SELECT j.id + 0, j.arguments || '' FROM json_each(:jobs) AS x CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value;

-- name: find_awaited
-- Which of these chains some job waits or waited for.
SELECT b.chain_id FROM json_each(:chains) AS x CROSS JOIN {blocker} AS b ON b.chain_id = x.value;

-- name: find_settled
-- Which of these attempts pass the fence: each of :rows begins with job and attempt.
SELECT json_group_array(l.job_id)
  FROM json_each(:rows) AS r
 CROSS JOIN {live} AS l
    ON l.state = 3 + 0 * r.key AND l.queue = CASE WHEN r.key >= 0 THEN :queue END
   AND l.priority = :priority + 0 * r.key
   AND l.job_id = json_extract(r.value, '$[0]') AND l.attempt = json_extract(r.value, '$[1]')
   AND l.worker IS CASE WHEN r.key >= 0 THEN coalesce(:held_by, l.worker) END;

-- name: settle_attempts
-- As record_attempts, for jobs that are over and have passed the fence. A row of :rows is job, attempt,
-- started_at, output, error and error_type.
INSERT INTO {attempt} ({tried})
SELECT l.job_id, l.attempt, :outcome, 1, :worker,
       coalesce(json_extract(r.value, '$[2]'), l.started_at, l.claimed_at), :now,
       json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'),
       l.progress, l.progress_text
  FROM json_each(:rows) AS r
 CROSS JOIN {live} AS l
    ON l.state = 3 + 0 * r.key AND l.queue = CASE WHEN r.key >= 0 THEN :queue END
   AND l.priority = :priority + 0 * r.key AND l.job_id = json_extract(r.value, '$[0]');

-- name: settle_live
DELETE FROM {live}
 WHERE state = 3 AND queue = :queue AND priority = :priority
   AND job_id IN (SELECT value FROM json_each(:jobs));

-- name: settle_chains
UPDATE {chain} SET state = :state, ended_at = :now
 WHERE id IN (SELECT value FROM json_each(:chains)) AND state = 0;

-- ---------------------------------------------------------------- only here: on a caller's connection

-- name: take_writer
-- Changes nothing, but begins to write: inside a caller's transaction this takes the writer lock before
-- the first read, since an upgrade later on would fail at once.
DELETE FROM {mark} WHERE 0;

-- name: newest_migration
-- Twice: as declared, where a caller's converters apply, and as expressions, where they do not.
SELECT name, applied_at, name || '', applied_at + 0 FROM {migration} ORDER BY name DESC LIMIT 1;
