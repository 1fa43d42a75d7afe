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
--     blockers, policy, arguments, trace, lane, weight, expires_at, schedule, tick, ordered, created_at
-- columns: said = task, label, queue, priority, max_attempts, timeout
-- columns: claimed = max_attempts, timeout, key, label, blockers, trace, lane, weight, expires_at, tick, created_at
-- columns: opened = state, queue, priority, job_id, attempt, open_blockers, run_at, lane, weight
-- columns: standing = state, attempt, used, lost, open_blockers, run_at, started_at, progress,
--     progress_text
-- columns: tried = job_id, number, outcome, final, worker, started_at, ended_at, output, error, error_type,
--     progress, progress_text
-- columns: registered = id, name, host, pid, birth, version, queues, concurrency, started_at, seen_at,
--     lease_until, declares
-- columns: planned = name, task, template, cron, every, tz, start_at, end_at, jitter, catch_up, overlap,
--     declared, declared_in, next_at
-- columns: since = paused_at, paused_by, last_tick, last_chain, ticks, skipped, missed
-- columns: noted = id, at, done_by, action, job_id, queue, number, chosen
-- columns: counter = minute, queue, task, outcome, slot
-- columns: counted = ended, removed, duration, h0, h1, h2, h3, h4, h5, h6, h7, waited, w0, w1, w2, w3, w4,
--     w5, w6, w7

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

-- name: pass_key
-- Give the key from the chain that has it to one behind it. None changed: it is another's by now.
UPDATE {key} SET chain_id = :chain_id, created_at = :now, ended_at = NULL
 WHERE task = :task AND key = :key AND chain_id = :was;

-- name: next_in_line
-- The jobs that stand behind a chain in the line of its key. Rides the primary key of blocker.
SELECT job_id FROM {blocker} WHERE chain_id = :chain_id AND in_line = 1;

-- name: move_in_line
-- A chain leaves the line: a job behind it waits for the one before it.
UPDATE {blocker} SET chain_id = :chain_id WHERE chain_id = :was AND job_id = :job_id;

-- name: mark_in_line
-- The same where an edge cannot be moved: one that says so, and one that does no longer.
UPDATE {blocker} SET in_line = :in_line WHERE chain_id = :chain_id AND job_id = :job_id;

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
INSERT INTO {blocker} (chain_id, job_id, position, name, trace, in_line)
VALUES (:chain_id, :job_id, :position, :name, :trace, :in_line);

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

-- name: change_job
-- The one update of a job's row: on_conflict="replace" before the first start, or a change by hand.
UPDATE {job} SET {stored set} WHERE id = :id;

-- name: change_waiting
-- The same of its row in live, and its time.
UPDATE {live} SET state = :state, run_at = :run_at, open_blockers = :open_blockers, queue = :to_queue,
       priority = :to_priority, lane = :lane, weight = :weight, parked_for = NULL
 WHERE state = +:was AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: move_waiting
-- A job that is not running changes its state or its time.
UPDATE {live} SET state = :state, run_at = :run_at, open_blockers = :open_blockers, parked_for = NULL
 WHERE state = +:was AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- ---------------------------------------------------------------- worker

-- name: record_attempts
-- The fence of every ending: no row is written unless the job still runs under this attempt number and for
-- this worker (a database that lost its last commits gives a number out again), nor a second one for an
-- attempt that one turn was told of twice. Who ends a job from outside holds it and names no worker. What
-- never began says -1 for its start.
INSERT INTO {attempt} ({tried}, continued_by, ended_by)
SELECT job_id, attempt, :outcome, :final, :worker, nullif(coalesce(:started_at, started_at, claimed_at), -1), :now, :output,
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
-- running → pending or scheduled. Fenced; the attempt number stays, so it is never given out again. What
-- has not begun goes on waiting: it keeps its run_at.
UPDATE {live}
   SET state = :state, run_at = coalesce(:run_at, run_at), used = :used, lost = :lost, claimed_at = NULL,
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
SELECT queue, priority, job_id, lane
  FROM {live} INDEXED BY {prefix}live_parked
 WHERE state = 4 AND parked_for IN (SELECT value FROM json_each(:reasons))
   AND queue IN (SELECT value FROM json_each(:queues))
 LIMIT :limit;

-- name: unpark_jobs
-- Pending again, or back in its lane.
UPDATE {live} SET state = CASE WHEN lane IS NULL THEN 0 ELSE 4 END, parked_for = NULL
 WHERE state = +4 AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: next_due
-- When the next scheduled job is due (rides live_due); and which of these queues have a gate or lanes, which is two
-- probes for each.
SELECT min(run_at),
       (SELECT json_group_array(q.value)
          FROM json_each(:queues) AS q
         WHERE EXISTS (SELECT 1 FROM {limit} AS g
                        WHERE g.queue = q.value AND g.lane = '' AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL))
            OR EXISTS (SELECT 1 FROM {lane} AS n WHERE n.queue = q.value))
  FROM {live} INDEXED BY {prefix}live_due WHERE state = 1;

-- name: peek_pending
-- How many pending jobs the queues have that are neither paused nor limited, no more than :most of each are
-- counted; whether a job is parked for one of these reasons, which is one probe where none is; and when the next
-- tick of these tasks is, which is one as well. Rides live_parked and schedule_next.
SELECT coalesce(sum((SELECT count(*)
                       FROM (SELECT 1 FROM {live} AS l WHERE l.state = 0 AND l.queue = q.value LIMIT :most))), 0),
       EXISTS (SELECT 1 FROM {live} WHERE state = +4)
       AND EXISTS (SELECT 1 FROM {live} INDEXED BY {prefix}live_parked
                    WHERE state = 4 AND parked_for IN (SELECT value FROM json_each(:reasons))
                      AND queue IN (SELECT value FROM json_each(:queues))),
       CASE WHEN EXISTS (SELECT 1 FROM {schedule} INDEXED BY {prefix}schedule_task)
            THEN (SELECT min((SELECT s.next_at FROM {schedule} AS s INDEXED BY {prefix}schedule_next
                               WHERE s.task = t.value AND s.paused_at IS NULL AND s.next_at IS NOT NULL
                               ORDER BY s.next_at LIMIT 1))
                    FROM json_each(:tasks) AS t) END
  FROM json_each(:queues) AS q
 WHERE q.value NOT IN (SELECT name FROM {queue})
                            AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*')
   AND q.value NOT IN (SELECT queue FROM {limit} WHERE lane = '' AND (concurrency IS NOT NULL OR rate IS NOT NULL));

-- name: find_gates
-- Which of these queues have a limit of their own, or lanes: a worker claims from them in another way. Two probes each.
SELECT q.value
  FROM json_each(:queues) AS q
 WHERE EXISTS (SELECT 1 FROM {limit} AS g
                WHERE g.queue = q.value AND g.lane = '' AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL))
    OR EXISTS (SELECT 1 FROM {lane} AS n WHERE n.queue = q.value);

-- name: peek_gates
-- How much a look at these queues would find, no more than :most of each kind are counted: open lanes, and jobs outside of
-- lanes where the queue is limited; nothing where the limit is reached. And whether a limit keeps something waiting
-- that will begin by itself.
SELECT coalesce(sum(CASE WHEN x.shut THEN 0 ELSE x.lanes + x.plain END), 0),
       coalesce(max((x.shut AND x.concurrency IS NOT 0 AND x.lanes + x.plain > 0) OR x.resting), 0)
  FROM (SELECT g.concurrency,
               coalesce(g.opens_at > :now, 0)
               OR coalesce((SELECT sum(coalesce(r.weight, 1)) FROM {live} AS r WHERE r.state = 3 AND r.queue = q.value), 0)
                  >= coalesce(g.concurrency, 9223372036854775807) AS shut,
               (SELECT count(*)
                  FROM (SELECT 1 FROM {lane} AS n INDEXED BY {prefix}lane_open
                         WHERE n.closed = 0 AND n.queue = q.value LIMIT :most)) AS lanes,
               CASE WHEN g.concurrency IS NULL AND g.rate IS NULL THEN 0
                    ELSE (SELECT count(*)
                            FROM (SELECT 1 FROM {live} AS l WHERE l.state = 0 AND l.queue = q.value LIMIT :most))
                    END AS plain,
               EXISTS (SELECT 1 FROM {lane} AS n INDEXED BY {prefix}lane_opens
                        WHERE n.closed > 0 AND n.queue = q.value AND n.opens_at > 0 AND n.closed < 3) AS resting
          FROM json_each(:queues) AS q
          LEFT JOIN {limit} AS g ON g.queue = q.value AND g.lane = ''
         WHERE q.value NOT IN (SELECT name FROM {queue})
   AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*')) AS x;

-- name: next_open
-- When a lane of these queues opens, or a queue's rate lets the next job begin. Rides lane_opens.
SELECT min(min(coalesce((SELECT n.opens_at FROM {lane} AS n INDEXED BY {prefix}lane_opens
                          WHERE n.closed > 0 AND n.queue = q.value AND n.opens_at > 0 ORDER BY n.opens_at LIMIT 1),
                        9223372036854775807),
               coalesce((SELECT g.opens_at FROM {limit} AS g
                          WHERE g.queue = q.value AND g.lane = '' AND g.opens_at > :now),
                        9223372036854775807)))
  FROM json_each(:queues) AS q
 WHERE q.value NOT IN (SELECT name FROM {queue})
   AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*');

-- name: next_priorities
-- The priorities of the next pending jobs of queues without a limit: what takes turns with lanes and limited queues.
SELECT priority
  FROM {live}
 WHERE state = 0
   AND queue IN (SELECT value FROM json_each(:queues)
                  WHERE value NOT IN (SELECT name FROM {queue})
   AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*')
                    AND value NOT IN (SELECT queue FROM {limit} WHERE lane = ''
                                         AND (concurrency IS NOT NULL OR rate IS NOT NULL)))
 ORDER BY priority DESC, job_id
 LIMIT :room;

-- name: read_gates
-- All that decides who begins next in these queues, in one look: their limits, what runs by lane (the running rows of the
-- queue), the first open lanes (lane_open) with their first jobs (live_lane), and, where the queue is limited, the
-- next jobs outside of lanes. A paused queue is left out.
SELECT q.value, g.concurrency, g.rate, g.per, g.spent, coalesce(g.turn, 0), e.concurrency, e.rate, e.per,
       (SELECT json_group_array(json_array(r.lane, r.weight))
          FROM (SELECT l.lane, sum(coalesce(l.weight, 1)) AS weight
                  FROM {live} AS l WHERE l.state = 3 AND l.queue = q.value GROUP BY l.lane) AS r),
       (SELECT json_group_array(json_array(o.lane, o.priority, o.served_at, o.spent, w.concurrency IS NOT NULL OR w.rate IS NOT NULL,
                                           w.concurrency, w.rate, w.per, json(o.jobs), 0))
          FROM (SELECT n.lane, n.priority, n.served_at, n.spent,
                       (SELECT json_group_array(json_array(f.job_id, f.priority, f.weight))
                          FROM (SELECT l.job_id, l.priority, coalesce(l.weight, 1) AS weight
                                  FROM {live} AS l INDEXED BY {prefix}live_lane
                                 WHERE l.state = 4 AND l.queue = n.queue AND l.lane = n.lane AND l.parked_for IS NULL
                                 ORDER BY l.priority DESC, l.job_id
                                 LIMIT :each) AS f) AS jobs
                  FROM {lane} AS n INDEXED BY {prefix}lane_open
                 WHERE n.closed = 0 AND n.queue = q.value
                 ORDER BY n.priority DESC, n.served_at
                 LIMIT :room) AS o
          LEFT JOIN {limit} AS w ON w.queue = q.value AND w.lane = o.lane),
       CASE WHEN g.concurrency IS NOT NULL OR g.rate IS NOT NULL
            THEN (SELECT json_group_array(json_array(p.job_id, p.priority, p.weight))
                    FROM (SELECT l.job_id, l.priority, coalesce(l.weight, 1) AS weight
                            FROM {live} AS l WHERE l.state = 0 AND l.queue = q.value
                           ORDER BY l.priority DESC, l.job_id LIMIT :room) AS p) END
  FROM json_each(:queues) AS q
  LEFT JOIN {limit} AS g ON g.queue = q.value AND g.lane = ''
  LEFT JOIN {limit} AS e ON e.queue = q.value AND e.lane = '*'
 WHERE q.value NOT IN (SELECT name FROM {queue})
   AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*');

-- name: save_lanes
-- Lanes that were served, or can start nothing for now. Who writes them has their queue's gate.
UPDATE {lane} SET closed = :closed, priority = :priority, served_at = :served_at, opens_at = :opens_at, spent = :spent
 WHERE queue = :queue AND lane = :lane;

-- name: drop_lanes
-- Lanes in which nothing waits, and that have nothing to remember.
DELETE FROM {lane} WHERE queue = :queue AND lane = :lane;

-- name: save_gates
INSERT INTO {limit} (queue, lane, turn, spent, opens_at) VALUES (:queue, '', :turn, :spent, :opens_at)
ON CONFLICT (queue, lane) DO UPDATE SET turn = excluded.turn, spent = excluded.spent, opens_at = excluded.opens_at;

-- name: find_orphans
-- Of the next jobs to claim, also the first of open lanes, rows that have lost their job: somebody deleted it by hand.
SELECT 0, r.queue, r.priority, r.job_id
  FROM (SELECT queue, priority, job_id
          FROM {live}
         WHERE state = 0 AND queue IN (SELECT value FROM json_each(:queues))
         ORDER BY priority DESC, job_id
         LIMIT :limit) AS r
 WHERE NOT EXISTS (SELECT 1 FROM {job} AS j NOT INDEXED WHERE j.id = r.job_id)
UNION ALL
SELECT 4, r.queue, l.priority, l.job_id
  FROM (SELECT n.queue,
               (SELECT l.priority FROM {live} AS l INDEXED BY {prefix}live_lane
                 WHERE l.state = 4 AND l.queue = n.queue AND l.lane = n.lane AND l.parked_for IS NULL
                 ORDER BY l.priority DESC, l.job_id LIMIT 1) AS priority,
               (SELECT l.job_id FROM {live} AS l INDEXED BY {prefix}live_lane
                 WHERE l.state = 4 AND l.queue = n.queue AND l.lane = n.lane AND l.parked_for IS NULL
                 ORDER BY l.priority DESC, l.job_id LIMIT 1) AS job_id
          FROM {lane} AS n INDEXED BY {prefix}lane_open
         WHERE n.closed = 0 AND n.queue IN (SELECT value FROM json_each(:queues))
         LIMIT :limit) AS r
 CROSS JOIN {live} AS l ON l.state = 4 + 0 * r.job_id AND l.queue = r.queue AND l.priority = r.priority
                       AND l.job_id = r.job_id
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
SELECT b.chain_id, b.job_id, j.chain_id, j.queue, j.priority, j.policy, j.task, j.key, b.name, j.lane
  FROM json_each(:chains) AS x
 CROSS JOIN {blocker} AS b ON b.chain_id = x.value
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = b.job_id;

-- name: unblock_jobs
-- A job waits for open_blockers chains; each end subtracts its share. At zero it is due, or scheduled
-- when its time has not come. Never "is any blocker left?". From now on it could begin, so run_at is no earlier.
UPDATE {live}
   SET open_blockers = open_blockers - :ended,
       state = CASE WHEN open_blockers > :ended THEN 2 WHEN run_at > :now THEN 1 WHEN lane IS NULL THEN 0 ELSE 4 END,
       run_at = CASE WHEN open_blockers > :ended THEN run_at ELSE max(run_at, :now) END
 WHERE state = 2 AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: add_rollups
-- Ended jobs of this minute; one row per writer (slot), so that writers do not meet.
INSERT INTO {rollup} AS t ({counter}, {counted})
VALUES ({:counter}, {:counted})
ON CONFLICT ({counter}) DO UPDATE SET {counted added};

-- name: insert_worker
INSERT INTO {worker} ({registered})
VALUES (:id, :name, :host, :pid, :birth, :version, :queues, :concurrency, :now, :now, :lease_until, :declares);

-- name: resize_worker
-- How many attempts a worker runs at a time, for those who look at it.
UPDATE {worker} SET concurrency = :concurrency WHERE id = :id AND name = :name;

-- name: renew_worker
-- One row carries the lease of everything the worker holds.
UPDATE {worker} SET seen_at = :now, lease_until = :lease_until WHERE id = :id AND name = :name;

-- name: find_running_of
-- What runs in a worker's name. Walks the running rows only.
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
-- The whole keys of those of these jobs that are open: five probes each, never a scan; and their lanes.
SELECT l.state, l.queue, l.priority, l.job_id, l.lane
  FROM json_each(:jobs) AS x
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value
 CROSS JOIN {live} AS l ON l.state IN (0, 1, 2, 3, 4 + 0 * j.id) AND l.queue = j.queue
                       AND l.priority = j.priority AND l.job_id = j.id;

-- name: delete_edges
DELETE FROM {blocker} WHERE chain_id = :chain_id;

-- name: delete_edges_of_jobs
DELETE FROM {blocker} INDEXED BY {prefix}blocker_job WHERE job_id = :job_id;

-- name: delete_audit_of_jobs
DELETE FROM {audit} INDEXED BY {prefix}audit_job WHERE job_id IN (SELECT value FROM json_each(:jobs));

-- name: drop_old_audit
-- Lines about no job, or none that is left, older than history is kept.
DELETE FROM {audit} INDEXED BY {prefix}audit_age WHERE job_id IS NULL AND at < :before;

-- name: delete_keys
DELETE FROM {key}
 WHERE task = (SELECT task FROM {chain} WHERE id = :chain_id) AND key = :key AND chain_id = :chain_id;

-- name: delete_jobs
DELETE FROM {job} WHERE id = :id;

-- name: delete_chains
DELETE FROM {chain} WHERE id = :id;

-- name: fold_rollups
-- Rows older than :before, made coarser: one per :unit minutes, without slots.
INSERT INTO {rollup} AS t ({counter}, {counted})
SELECT minute / :unit * :unit, queue, task, outcome, -1, {counted summed}
  FROM {rollup}
 WHERE minute < :before AND NOT (slot = -1 AND minute % :unit = 0)
 GROUP BY 1, 2, 3, 4
ON CONFLICT ({counter}) DO UPDATE SET {counted added};

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
-- Ended attempts of these jobs and those that run, by job, oldest first. The LEFT JOIN is a
-- fence, too, and so is coalesce: as an inner one it could get the Bloom filter.
SELECT {a.tried}, a.ended_by
  FROM json_each(:jobs) AS x
 CROSS JOIN {attempt} AS a ON a.job_id = x.value
UNION ALL
SELECT l.job_id, l.attempt, 0, NULL, w.name, l.started_at, NULL, NULL, NULL, NULL, l.progress,
       l.progress_text, NULL
  FROM json_each(:jobs) AS x
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value
  LEFT JOIN {live} AS l ON l.state = 3 + 0 * j.id AND l.queue = j.queue AND l.priority = j.priority
                       AND l.job_id = j.id
  LEFT JOIN {worker} AS w ON w.id = l.worker
 WHERE coalesce(l.started_at, 0) > 0
 ORDER BY 1, 2;

-- name: list_blockers
-- What these jobs wait for, in declared order, with the output or error of each chain's last job.
SELECT b.job_id, b.position, b.name, b.chain_id, c.state, t.task, a.output, a.error, b.trace, b.in_line
  FROM json_each(:jobs) AS x
 CROSS JOIN {blocker} AS b INDEXED BY {prefix}blocker_job ON b.job_id = x.value
 CROSS JOIN {chain} AS c ON c.id = b.chain_id
  LEFT JOIN {job} AS t NOT INDEXED ON t.id = coalesce(
       (SELECT k.id FROM {job} AS k INDEXED BY {prefix}job_chain
         WHERE k.chain_id = c.id AND k.position > 0 ORDER BY k.position DESC LIMIT 1), c.id)
  LEFT JOIN {attempt} AS a ON a.job_id = t.id
                          AND a.number = (SELECT max(m.number) FROM {attempt} AS m WHERE m.job_id = t.id)
 ORDER BY b.job_id, b.position;

-- name: list_members
-- What one job waits for, from a position on, in declared order, with the output or error of each
-- chain's last job: a page of list_blockers. Rides blocker_job.
SELECT b.job_id, b.position, b.name, b.chain_id, c.state, t.task, a.output, a.error, b.trace, b.in_line
  FROM {blocker} AS b INDEXED BY {prefix}blocker_job
 CROSS JOIN {chain} AS c ON c.id = b.chain_id
  LEFT JOIN {job} AS t NOT INDEXED ON t.id = coalesce(
       (SELECT k.id FROM {job} AS k INDEXED BY {prefix}job_chain
         WHERE k.chain_id = c.id AND k.position > 0 ORDER BY k.position DESC LIMIT 1), c.id)
  LEFT JOIN {attempt} AS a ON a.job_id = t.id
                          AND a.number = (SELECT max(m.number) FROM {attempt} AS m WHERE m.job_id = t.id)
 WHERE b.job_id = :job_id AND b.position >= :first
 ORDER BY b.position LIMIT :limit;

-- name: count_members
-- How many of the chains that a job waits for have ended, and how many of those badly. Looks at each of
-- them, by blocker_job.
SELECT count(*), coalesce(sum(c.state IN (2, 3)), 0)
  FROM {blocker} AS b INDEXED BY {prefix}blocker_job
 CROSS JOIN {chain} AS c ON c.id = b.chain_id
 WHERE b.job_id = :job_id AND c.state <> 0;

-- name: list_bad_members
-- The first of the chains that a job waits for which have failed or were cancelled. Looks at each of them
-- up to those, by blocker_job.
SELECT b.position
  FROM {blocker} AS b INDEXED BY {prefix}blocker_job
 CROSS JOIN {chain} AS c ON c.id = b.chain_id
 WHERE b.job_id = :job_id AND c.state IN (2, 3)
 ORDER BY b.position LIMIT :limit;

-- name: chain_ends
-- Chains with their place in the list, their state, and the output or error of their last jobs.
SELECT 0, x.key, NULL, c.id, c.state, t.task, a.output, a.error, NULL, NULL
  FROM json_each(:chains) AS x
 CROSS JOIN {chain} AS c ON c.id = x.value
  LEFT JOIN {job} AS t NOT INDEXED ON t.id = coalesce(
       (SELECT k.id FROM {job} AS k INDEXED BY {prefix}job_chain
         WHERE k.chain_id = c.id AND k.position > 0 ORDER BY k.position DESC LIMIT 1), c.id)
  LEFT JOIN {attempt} AS a ON a.job_id = t.id
                          AND a.number = (SELECT max(m.number) FROM {attempt} AS m WHERE m.job_id = t.id);

-- name: list_workers
SELECT {registered}
  FROM {worker} ORDER BY id;

-- name: list_paused
SELECT name, paused_at, paused_by FROM {queue} ORDER BY name;

-- name: list_limits
-- All limits, or those of one queue; a gate without a number is none.
SELECT queue, lane, concurrency, rate, per, spent, opens_at, declared, changed_at, changed_by
  FROM {limit}
 WHERE (:queue IS NULL OR queue = :queue) AND (concurrency IS NOT NULL OR rate IS NOT NULL)
 ORDER BY queue, lane;

-- name: list_lanes
-- Lanes of a queue by name, with what applies to each and how much of it waits, up to :most. Rides the keys of lane and limit, and
-- live_lane.
SELECT n.lane, n.closed, n.served_at, n.opens_at, n.spent, x.lane, x.concurrency, x.rate, x.per,
       (SELECT count(*)
          FROM (SELECT 1 FROM {live} AS l INDEXED BY {prefix}live_lane
                 WHERE l.state = 4 AND l.queue = n.queue AND l.lane = n.lane AND l.parked_for IS NULL LIMIT :most))
  FROM {lane} AS n
  LEFT JOIN {limit} AS x ON x.queue = n.queue
        AND x.lane = CASE WHEN EXISTS (SELECT 1 FROM {limit} AS o WHERE o.queue = n.queue AND o.lane = n.lane
                                                          AND (o.concurrency IS NOT NULL OR o.rate IS NOT NULL))
                          THEN n.lane ELSE '*' END
 WHERE n.queue = :queue AND n.lane > :cursor
 ORDER BY n.lane LIMIT :limit;

-- name: running_lanes
-- What runs in a queue, by lane: weight, number, and the oldest job. Walks the running rows of the queue.
SELECT l.lane, sum(coalesce(l.weight, 1)), count(*), min(l.job_id)
  FROM {live} AS l WHERE l.state = 3 AND l.queue = :queue GROUP BY l.lane;

-- name: running_in
-- Which jobs run in a queue, or in a lane of it, up to :limit. Walks the running rows of the queue.
SELECT l.job_id, l.claimed_at FROM {live} AS l
 WHERE l.state = 3 AND l.queue = :queue AND (:lane IS NULL OR l.lane = :lane)
 ORDER BY l.job_id LIMIT :limit;

-- name: read_limit
-- The limit of a queue itself.
SELECT concurrency, rate, per, spent FROM {limit} WHERE queue = :queue AND lane = '';

-- name: read_lane
-- A lane as it stands, and what applies to it.
SELECT n.closed, n.opens_at, x.concurrency, x.rate, x.per, n.spent
  FROM (SELECT :queue AS queue, :lane AS lane) AS k
  LEFT JOIN {lane} AS n ON n.queue = k.queue AND n.lane = k.lane
  LEFT JOIN {limit} AS x ON x.queue = k.queue
        AND x.lane = CASE WHEN EXISTS (SELECT 1 FROM {limit} AS o WHERE o.queue = k.queue AND o.lane = k.lane
                                                          AND (o.concurrency IS NOT NULL OR o.rate IS NOT NULL))
                          THEN k.lane ELSE '*' END;

-- name: count_parked
-- Jobs that are parked, by the reason, no more than :limit are counted. Rides live_parked.
SELECT parked_for, count(*)
  FROM (SELECT parked_for FROM {live} INDEXED BY {prefix}live_parked
         WHERE state = 4 AND parked_for IS NOT NULL LIMIT :limit) AS l
 GROUP BY parked_for;

-- name: list_audit
-- What people did, newest first; what was done to many counts once. Rides audit_told.
SELECT {noted} FROM {audit} INDEXED BY {prefix}audit_told
 WHERE number IS NOT NULL AND id < :cursor
 ORDER BY id DESC LIMIT :limit;

-- name: list_audit_of_job
-- Rides audit_job.
SELECT {noted} FROM {audit} INDEXED BY {prefix}audit_job
 WHERE job_id = :job_id AND id < :cursor
 ORDER BY id DESC LIMIT :limit;

-- name: list_audit_of_queue
-- Rides audit_queue.
SELECT {noted} FROM {audit} INDEXED BY {prefix}audit_queue
 WHERE queue = :queue AND id < :cursor
 ORDER BY id DESC LIMIT :limit;

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

-- name: count_before_in_lane
-- The same of one that waits in a lane, in which it waits for its turn. Rides live_lane, twice.
SELECT count(*)
  FROM (SELECT 1 FROM (SELECT 1 FROM {live} AS l INDEXED BY {prefix}live_lane
                        WHERE l.state = 4 AND l.queue = :queue AND l.lane = :lane AND l.parked_for IS NULL
                          AND l.priority > :priority LIMIT :most)
        UNION ALL
        SELECT 1 FROM (SELECT 1 FROM {live} AS l INDEXED BY {prefix}live_lane
                        WHERE l.state = 4 AND l.queue = :queue AND l.lane = :lane AND l.parked_for IS NULL
                          AND l.priority = :priority AND l.job_id < :job_id LIMIT :most)
        LIMIT :most);

-- name: live_strips
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

-- name: live_priorities
-- The priorities of one state in one queue, by probing from one to the next.
WITH RECURSIVE p(priority) AS (
    SELECT (SELECT priority FROM {live} WHERE state = +:state AND queue = :queue ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT l.priority FROM {live} AS l
             WHERE l.state = +:state AND l.queue = :queue AND l.priority < p.priority
             ORDER BY l.priority DESC LIMIT 1)
      FROM p WHERE p.priority IS NOT NULL
)
SELECT priority FROM p WHERE priority IS NOT NULL;

-- name: job_strips
-- The (queue, task) groups ever used, by probing job_strip.
WITH RECURSIVE q(queue) AS (
    SELECT min(queue) FROM {job} INDEXED BY {prefix}job_strip
    UNION ALL
    SELECT (SELECT min(j.queue) FROM {job} AS j INDEXED BY {prefix}job_strip WHERE j.queue > q.queue)
      FROM q WHERE q.queue IS NOT NULL
), t(queue, task) AS (
    SELECT q.queue, (SELECT min(j.task) FROM {job} AS j INDEXED BY {prefix}job_strip WHERE j.queue = q.queue)
      FROM q WHERE q.queue IS NOT NULL
    UNION ALL
    SELECT t.queue, (SELECT min(j.task) FROM {job} AS j INDEXED BY {prefix}job_strip
                      WHERE j.queue = t.queue AND j.task > t.task)
      FROM t WHERE t.task IS NOT NULL
)
SELECT queue, task FROM t WHERE task IS NOT NULL;

-- The walks below give job ids past a cursor in one direction, at most :limit of them. Each exists
-- twice: _newest (descending) and _oldest (ascending).

-- name: walk_jobs
SELECT id FROM {job} NOT INDEXED WHERE id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_strip
SELECT id FROM {job} INDEXED BY {prefix}job_strip
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

-- name: ended_jobs
-- Which of these jobs ended in a range of time. Rides the primary key of attempt.
SELECT a.job_id
  FROM json_each(:jobs) AS x CROSS JOIN {attempt} AS a ON a.job_id = x.value
 WHERE a.final = 1 AND a.ended_at >= :since AND a.ended_at < :until;

-- name: walk_label
SELECT id FROM {job} INDEXED BY {prefix}job_label
 WHERE label = :label AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_key
SELECT id FROM {job} INDEXED BY {prefix}job_key
 WHERE key = :key AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_schedule
SELECT id FROM {job} INDEXED BY {prefix}job_schedule
 WHERE schedule = :schedule AND id {past} :cursor ORDER BY id {direction} LIMIT :limit;

-- name: walk_chain_jobs
SELECT id FROM {job} NOT INDEXED WHERE id = :chain_id AND id {past} :cursor
UNION ALL
SELECT id FROM {job} INDEXED BY {prefix}job_chain
 WHERE chain_id = :chain_id AND position > 0 AND id {past} :cursor
 ORDER BY id {direction} LIMIT :limit;

-- name: chain_tasks
-- The task that each of these chains began with. Rides the primary key of chain.
SELECT c.id, c.task FROM json_each(:chains) AS x CROSS JOIN {chain} AS c ON c.id = x.value;

-- name: later_jobs
-- Jobs of these chains behind their first. Rides job_chain.
SELECT j.id
  FROM json_each(:chains) AS x
 CROSS JOIN {job} AS j INDEXED BY {prefix}job_chain ON j.chain_id = x.value AND j.position > 0
 LIMIT :limit;

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

-- name: count_strip
-- Open jobs of a state and queue, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM {live} WHERE state = +:state AND queue = :queue LIMIT :limit);

-- name: count_strips
-- Open jobs of a state by queue, where there are very many queues; counted up to a limit in all.
SELECT queue, count(*)
  FROM (SELECT queue FROM {live} WHERE state = +:state LIMIT :limit) GROUP BY queue;

-- name: count_ahead
-- Jobs of a queue that were claimed ahead and have not begun. Walks the running rows only.
SELECT count(*)
  FROM (SELECT 1 FROM {live} WHERE state = 3 AND queue = :queue AND started_at IS NULL LIMIT :limit);

-- name: sum_rollups
SELECT queue, outcome, sum(ended - removed) FROM {rollup} GROUP BY queue, outcome;

-- name: count_tasks
-- Open jobs of a state by task, those that were claimed ahead and have not begun apart; counted up to a limit
-- in all. Rides the primary key of job.
SELECT j.task, l.state = 3 AND l.started_at IS NULL, count(*)
  FROM (SELECT job_id, state, started_at FROM {live} WHERE state = +:state LIMIT :limit) AS l
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = l.job_id
 GROUP BY 1, 2;

-- name: sum_task_rollups
SELECT task, outcome, sum(ended - removed) FROM {rollup} GROUP BY task, outcome;

-- name: read_rollups
-- Jobs that ended in a range of minutes, by bucket of :unit minutes; with :whole 1 not by queue and task. A range of the
-- primary key.
SELECT minute / :unit * :unit, CASE :whole WHEN 1 THEN '' ELSE queue END,
       CASE :whole WHEN 1 THEN '' ELSE task END, outcome, {counted summed}
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

-- name: set_limit
-- What a person or the code says of a queue or a lane. What was spent stays: it is as old as it is.
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
-- A limit has changed: lanes that were kept waiting are looked at again. Walks the lanes of the queue.
UPDATE {lane} SET closed = 0, opens_at = NULL
 WHERE queue = :queue AND (closed = 1 OR closed = 2) AND (:lane IN ('', '*') OR lane = :lane);

-- name: insert_audit
INSERT INTO {audit} (at, done_by, action, job_id, queue, number, chosen)
VALUES (:at, :done_by, :action, :job_id, :queue, :number, :chosen);

-- ---------------------------------------------------------------- schedules

-- name: glance
-- When the next tick of these tasks is, one probe of schedule_next for each; what those of them that code has
-- declared were declared in, and the limits of queues that are :known (schedule_declared, limit_declared); and
-- which of these queues have a gate or lanes, which is two probes for each.
SELECT (SELECT min((SELECT s.next_at FROM {schedule} AS s INDEXED BY {prefix}schedule_next
                     WHERE s.task = t.value AND s.paused_at IS NULL AND s.next_at IS NOT NULL
                     ORDER BY s.next_at LIMIT 1))
          FROM json_each(:tasks) AS t),
       (SELECT json_group_array(DISTINCT s.declared_in)
          FROM json_each(:tasks) AS t
         CROSS JOIN {schedule} AS s INDEXED BY {prefix}schedule_declared
            ON s.task = t.value AND s.declared IS NOT NULL),
       (SELECT json_group_array(DISTINCT g.declared_in)
          FROM json_each(:known) AS k
         CROSS JOIN {limit} AS g INDEXED BY {prefix}limit_declared
            ON g.queue = k.value AND g.declared IS NOT NULL),
       (SELECT json_group_array(q.value)
          FROM json_each(:queues) AS q
         WHERE EXISTS (SELECT 1 FROM {limit} AS g
                        WHERE g.queue = q.value AND g.lane = '' AND (g.concurrency IS NOT NULL OR g.rate IS NOT NULL))
            OR EXISTS (SELECT 1 FROM {lane} AS n WHERE n.queue = q.value));

-- name: find_due_schedules
-- Schedules of these tasks with a tick that has come. Rides schedule_next.
SELECT s.name
  FROM json_each(:tasks) AS t
 CROSS JOIN {schedule} AS s INDEXED BY {prefix}schedule_next
    ON s.task = t.value AND s.paused_at IS NULL AND s.next_at IS NOT NULL AND s.next_at <= :now
 LIMIT :limit;

-- name: read_schedules
SELECT {s.planned}, {s.since}
  FROM json_each(:names) AS x CROSS JOIN {schedule} AS s ON s.name = x.value
 ORDER BY s.name;

-- name: list_schedules
-- Past a name, by the primary key.
SELECT {planned}, {since} FROM {schedule} WHERE name > :cursor ORDER BY name LIMIT :limit;

-- name: list_schedules_of_task
-- Rides schedule_task.
SELECT {planned}, {since} FROM {schedule} INDEXED BY {prefix}schedule_task
 WHERE task = :task AND name > :cursor ORDER BY name LIMIT :limit;

-- name: list_declared
-- Schedules of these tasks that code has declared. Rides schedule_declared.
SELECT s.name
  FROM json_each(:tasks) AS t
 CROSS JOIN {schedule} AS s INDEXED BY {prefix}schedule_declared ON s.task = t.value AND s.declared IS NOT NULL;

-- name: set_schedules
-- Made, or made anew: its pause and its history stay.
INSERT INTO {schedule} ({planned})
VALUES ({:planned})
ON CONFLICT (name) DO UPDATE
   SET task = excluded.task, template = excluded.template, cron = excluded.cron, every = excluded.every,
       tz = excluded.tz, start_at = excluded.start_at, end_at = excluded.end_at, jitter = excluded.jitter,
       catch_up = excluded.catch_up, overlap = excluded.overlap, declared = excluded.declared,
       declared_in = excluded.declared_in, next_at = excluded.next_at;

-- name: declare_schedules
-- Declared as before, among other things than before.
UPDATE {schedule} SET declared_in = :declared_in WHERE name = :name;

-- name: advance_schedules
-- After ticks: the jobs of these ticks are stored in the same transaction.
UPDATE {schedule}
   SET next_at = :next_at, last_tick = coalesce(:last_tick, last_tick),
       last_chain = coalesce(:last_chain, last_chain), ticks = ticks + :ticks, skipped = skipped + :skipped,
       missed = missed + :missed
 WHERE name = :name;

-- name: pause_schedule
UPDATE {schedule} SET paused_at = :now, paused_by = :by WHERE name = :name AND paused_at IS NULL;

-- name: resume_schedule
UPDATE {schedule} SET paused_at = NULL, paused_by = NULL, next_at = :next_at WHERE name = :name;

-- name: delete_schedules
DELETE FROM {schedule} WHERE name = :name;

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

-- ---------------------------------------------------------------- only here: one plain job

-- name: insert_plain_job
-- A job with nothing of what few have: who uses no lanes, expiry or schedules writes none of their columns.
INSERT INTO {job} (id, chain_id, position, {said}, key, blockers, policy, arguments, trace, created_at)
VALUES (:id, :chain_id, :position, {:said}, :key, :blockers, :policy, :arguments, :trace, :created_at);

-- name: insert_plain_live
INSERT INTO {live} (state, queue, priority, job_id, attempt, open_blockers, run_at)
VALUES (0, :queue, :priority, :job_id, 0, 0, :run_at);

-- ---------------------------------------------------------------- only here: many jobs as one value

-- name: insert_run
-- New chains' first jobs that differ in their arguments only, by their ids. A fifth of the time of as many rows with all of their
-- values, since nothing is bound for each of them.
INSERT INTO {job} (id, chain_id, position, {said}, blockers, policy, arguments, trace, lane, weight, created_at)
SELECT cast(a.key AS INTEGER), cast(a.key AS INTEGER), 0, {:said}, 0, :policy, a.value, :trace, :lane, :weight, :now
  FROM json_each(:arguments) AS a;

-- name: insert_chains_of_run
INSERT INTO {chain} (id, task, created_at, trace)
SELECT i.value, :task, :now, :trace FROM json_each(:ids) AS i;

-- name: insert_live_of_run
INSERT INTO {live} (state, queue, priority, job_id, run_at, lane, weight)
SELECT :state, :queue, :priority, i.value, :run_at, :lane, :weight FROM json_each(:ids) AS i;

-- name: insert_edges_of_job
-- A job waits for these chains; their positions follow one another.
INSERT INTO {blocker} (chain_id, job_id, position, name, trace, in_line)
SELECT c.value, :job_id, :position + c.key, :name, :trace, :in_line FROM json_each(:chains) AS c;

-- ---------------------------------------------------------------- only here: claiming in two steps

-- name: find_due
-- Scheduled jobs whose time has come. Rides live_due.
SELECT queue, priority, job_id, lane
  FROM {live} INDEXED BY {prefix}live_due
 WHERE state = 1 AND run_at <= :now
 ORDER BY run_at
 LIMIT :limit;

-- name: promote_jobs
UPDATE {live} SET state = CASE WHEN lane IS NULL THEN 0 ELSE 4 END
 WHERE state = +1 AND queue = :queue AND priority = :priority AND job_id = :job_id;

-- name: find_pending
-- The next jobs in order of claiming. For each queue a range of the clustered key, stopped as soon as
-- :room rows are found; never a sort of the backlog. A paused or limited queue is left out. A worker that gives its
-- name must still be registered: what a swept one claims would count as lost. Long arguments are left out:
-- a text has a limit, and together they may be longer.
SELECT json_group_array(json_array(
           r.job_id, r.attempt + 1, r.queue, r.priority, j.chain_id, j.position, j.task,
           CASE WHEN length(j.arguments) <= 4096 THEN j.arguments ELSE '' END,
           r.used, r.lost, {j.claimed}, r.run_at, :now, :worker))
  FROM (SELECT job_id, attempt, queue, priority, used, lost, run_at
          FROM {live}
         WHERE state = 0
           AND (:name IS NULL OR EXISTS (SELECT 1 FROM {worker} WHERE id = :worker AND name = :name))
           AND queue IN (SELECT value FROM json_each(:queues)
                          WHERE value NOT IN (SELECT name FROM {queue})
                            AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*')
                            AND value NOT IN (SELECT queue FROM {limit} WHERE lane = ''
                                                 AND (concurrency IS NOT NULL OR rate IS NOT NULL)))
         ORDER BY priority DESC, job_id
         LIMIT :room) AS r
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = r.job_id;

-- ---------------------------------------------------------------- only here: lanes, under the one writer

-- name: fill_lanes
-- Something waits in a lane: it has a row, which is open unless it was closed for a reason that stands. A new one comes
-- after those that wait already.
INSERT INTO {lane} AS t (queue, lane, closed, priority, served_at)
VALUES (:queue, :lane, 0, :priority,
        max(:now, coalesce((SELECT g.turn FROM {limit} AS g WHERE g.queue = :queue AND g.lane = ''), 0)))
ON CONFLICT (queue, lane) DO UPDATE
   SET priority = CASE t.closed WHEN 3 THEN excluded.priority ELSE max(t.priority, excluded.priority) END,
       opens_at = CASE t.closed WHEN 3 THEN NULL ELSE t.opens_at END,
       closed = CASE t.closed WHEN 3 THEN 0 ELSE t.closed END
 WHERE t.closed = 3 OR t.priority < excluded.priority;

-- name: free_lanes
-- A slot of a lane came free.
UPDATE {lane} SET closed = 0, opens_at = NULL WHERE queue = :queue AND lane = :lane AND closed = 1;

-- name: rest_lanes
-- A handler asks that its lane rests until a time.
INSERT INTO {lane} AS t (queue, lane, closed, priority, served_at, opens_at)
VALUES (:queue, :lane, 2, :priority, :now, :until)
ON CONFLICT (queue, lane) DO UPDATE
   SET opens_at = CASE t.closed WHEN 2 THEN max(t.opens_at, excluded.opens_at) ELSE excluded.opens_at END, closed = 2;

-- name: open_lanes
-- Lanes whose time has come, no more than :limit. Rides lane_opens, and the key.
UPDATE {lane} SET closed = 0, opens_at = NULL
 WHERE (queue, lane) IN (SELECT n.queue, n.lane FROM {lane} AS n INDEXED BY {prefix}lane_opens
                          WHERE n.closed > 0 AND n.queue IN (SELECT value FROM json_each(:queues))
                            AND n.opens_at <= :now
                          LIMIT :limit);

-- name: count_open
-- How many lanes of these queues are open, no more than :limit are counted. Rides lane_open.
SELECT count(*)
  FROM (SELECT 1 FROM {lane} AS n INDEXED BY {prefix}lane_open
         WHERE n.closed = 0 AND n.queue IN (SELECT value FROM json_each(:queues)) LIMIT :limit);

-- name: find_chosen
-- Jobs that were chosen to begin, by their whole keys: each of :rows is state, queue, priority, job. As find_pending.
SELECT json_group_array(json_array(
           l.job_id, l.attempt + 1, l.queue, l.priority, j.chain_id, j.position, j.task,
           CASE WHEN length(j.arguments) <= 4096 THEN j.arguments ELSE '' END,
           l.used, l.lost, {j.claimed}, l.run_at, :now, :worker))
  FROM json_each(:rows) AS r
 CROSS JOIN {live} AS l
    ON l.state = json_extract(r.value, '$[0]') AND l.queue = json_extract(r.value, '$[1]')
   AND l.priority = json_extract(r.value, '$[2]') AND l.job_id = json_extract(r.value, '$[3]')
 CROSS JOIN {job} AS j NOT INDEXED ON j.id = l.job_id
 WHERE :name IS NULL OR EXISTS (SELECT 1 FROM {worker} WHERE id = :worker AND name = :name);

-- name: claim_chosen
-- As claim_jobs, for jobs that begin at once: in their lanes (4), or pending in a limited queue (0).
UPDATE {live}
   SET state = 3, attempt = attempt + 1, claimed_at = :now, started_at = CASE WHEN lost < :safe THEN :now END,
       worker = :worker, progress = NULL, progress_text = NULL
 WHERE state = +:state AND queue = :queue AND priority = :priority
   AND job_id IN (SELECT value FROM json_each(:jobs));

-- ---------------------------------------------------------------- only here: many at once
-- What a worker's turn does to most of its jobs. A statement for each row would be as quick, but the
-- interpreter is locked and unlocked around each, and around each row that is read, and threads with
-- handlers take it in between. So each is one statement for all that have queue and priority in common,
-- and what is read is one value.

-- name: claim_jobs
-- pending → running; the attempt number is the fence and only ever grows. Those up to :free begin at once,
-- but not one that the next loss would fail. They stand together at the beginning of their range: one walk.
UPDATE {live}
   SET state = 3, attempt = attempt + 1, claimed_at = :now,
       started_at = CASE WHEN job_id <= :free AND lost < :safe THEN :now END, worker = :worker,
       progress = NULL, progress_text = NULL
 WHERE state = 0 AND queue = :queue AND priority = :priority AND job_id <= :last
   AND +job_id IN (SELECT value FROM json_each(:jobs));

-- name: long_arguments
SELECT j.id + 0, j.arguments || '' FROM json_each(:jobs) AS x CROSS JOIN {job} AS j NOT INDEXED ON j.id = x.value;

-- name: find_awaited
-- Which of these chains some job waits or waited for.
SELECT b.chain_id FROM json_each(:chains) AS x CROSS JOIN {blocker} AS b ON b.chain_id = x.value;

-- name: settle_attempts
-- As record_attempts, for jobs that are over: writes those that pass the fence. A row of :rows is job, attempt,
-- started_at, output, error and error_type.
INSERT INTO {attempt} ({tried})
SELECT l.job_id, l.attempt, :outcome, 1, :worker,
       nullif(coalesce(json_extract(r.value, '$[2]'), l.started_at, l.claimed_at), -1), :now,
       json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'),
       l.progress, l.progress_text
  FROM json_each(:rows) AS r
 CROSS JOIN {live} AS l
    ON l.state = 3 + 0 * r.key AND l.queue = CASE WHEN r.key >= 0 THEN :queue END
   AND l.priority = :priority + 0 * r.key
   AND l.job_id = json_extract(r.value, '$[0]') AND l.attempt = json_extract(r.value, '$[1]')
   AND l.worker IS CASE WHEN r.key >= 0 THEN coalesce(:held_by, l.worker) END;

-- name: changed
-- How many rows the statement before it wrote.
SELECT changes();

-- name: find_settled
-- Of which of these attempts settle_attempts has just written the end: by the same fence, behind which
-- nothing has moved since.
SELECT json_group_array(l.job_id)
  FROM json_each(:rows) AS r
 CROSS JOIN {live} AS l
    ON l.state = 3 + 0 * r.key AND l.queue = CASE WHEN r.key >= 0 THEN :queue END
   AND l.priority = :priority + 0 * r.key
   AND l.job_id = json_extract(r.value, '$[0]') AND l.attempt = json_extract(r.value, '$[1]')
   AND l.worker IS CASE WHEN r.key >= 0 THEN coalesce(:held_by, l.worker) END;

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
