"""An auditor: compares the tables with each other, and with what the processes wrote down.

Two sources that share no fate. `audit_tables` asks the database by plain SQL, past the library;
every check holds in every snapshot, so it may run in the middle of a storm. `audit_logs` compares
what it finds with the logs. The checks are written for PostgreSQL; SQLite has a shorter word for
IS NOT DISTINCT FROM.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg

from tests.races.logs import Finding, Logs

OWN = "own:"  # begins the tokens of jobs stored together with a row of the caller's
CONTINUED, LOST = 2, 7
OUTCOMES = {
    "completed": 1, "continued": 2, "failed": 3, "timeout": 4,
    "snoozed": 5, "cancelled": 6, "lost": 7, "released": 8,
}  # fmt: skip


class Check(NamedTuple):
    """Rows of this statement are findings; the text says what one means."""

    kind: str
    text: str
    sql: str


UNFINISHED = """
    (SELECT count(*) FROM towline_blocker AS b JOIN towline_chain AS c ON c.id = b.chain_id
      WHERE b.job_id = j.id AND (c.state = 0 OR c.state IN (2, 3) AND j.policy = 1))"""
LAST_NUMBER = (
    "coalesce((SELECT max(number) FROM towline_attempt AS a WHERE a.job_id = l.job_id), 0)"
)

CHECKS = (
    # ---- a job has exactly one live row or exactly one final attempt
    Check("twice", "job {} has {} live rows",
          "SELECT job_id, count(*) FROM towline_live GROUP BY job_id HAVING count(*) > 1"),
    Check("twice", "job {} has {} final attempts",
          """SELECT job_id, count(*) FROM towline_attempt WHERE final = 1
              GROUP BY job_id HAVING count(*) > 1"""),
    Check("twice", "job {} is live and has ended at once",
          """SELECT DISTINCT job_id FROM towline_live
              WHERE job_id IN (SELECT job_id FROM towline_attempt WHERE final = 1)"""),
    Check("lost", "job {} has neither a live row nor a final attempt",
          """SELECT id FROM towline_job WHERE id NOT IN (SELECT job_id FROM towline_live)
                AND id NOT IN (SELECT job_id FROM towline_attempt WHERE final = 1)"""),
    # ---- rows fit each other
    Check("row", "the live row of job {} has no job, or another queue or priority",
          """SELECT l.job_id FROM towline_live AS l LEFT JOIN towline_job AS j
                ON j.id = l.job_id AND j.queue = l.queue AND j.priority = l.priority
              WHERE j.id IS NULL"""),
    Check("row", "attempt {1} belongs to job {0}, which does not exist",
          """SELECT job_id, number FROM towline_attempt
              WHERE job_id NOT IN (SELECT id FROM towline_job)"""),
    Check("row", "the final attempt {1} of job {0} is not its last",
          """SELECT a.job_id, a.number FROM towline_attempt AS a WHERE a.final = 1 AND EXISTS
             (SELECT 1 FROM towline_attempt AS m WHERE m.job_id = a.job_id AND m.number > a.number)
          """),
    Check("twice", "job {} is at attempt {}, but attempt {} has ended already",
          f"""SELECT l.job_id, l.attempt, {LAST_NUMBER} FROM towline_live AS l
               WHERE l.attempt < {LAST_NUMBER} OR l.state = 3 AND l.attempt = {LAST_NUMBER}"""),
    Check("row", "the live row of job {} does not fit its state {}",
          """SELECT l.job_id, l.state FROM towline_live AS l JOIN towline_job AS j
                 ON j.id = l.job_id
              WHERE (l.state = 3) <> (l.worker IS NOT NULL AND l.claimed_at IS NOT NULL)
                 OR l.started_at IS NOT NULL AND l.state <> 3
                 OR (l.state = 4) <> (l.parked_for IS NOT DISTINCT FROM 'task:' || j.task
                                      OR l.state = 4 AND l.parked_for IS NULL
                                         AND l.lane IS NOT NULL)
                 OR l.state = 0 AND l.lane IS NOT NULL
                 OR l.lane IS DISTINCT FROM j.lane OR l.weight IS DISTINCT FROM j.weight
                 OR (l.state = 2) <> (l.open_blockers > 0)"""),
    Check("row", "job {} is open after {} of {} attempts and {} lost ones",
          """SELECT j.id, l.used, j.max_attempts, l.lost FROM towline_live AS l
               JOIN towline_job AS j ON j.id = l.job_id
              WHERE l.used >= j.max_attempts OR l.lost >= 3"""),
    # ---- chains
    Check("chain", "job {} belongs to chain {}, which does not exist",
          """SELECT id, chain_id FROM towline_job
              WHERE chain_id NOT IN (SELECT id FROM towline_chain)"""),
    Check("chain", "chain {} has no first job of its id and task",
          """SELECT c.id FROM towline_chain AS c LEFT JOIN towline_job AS j ON j.id = c.id
                AND j.chain_id = c.id AND j.position = 0 AND j.task = c.task
              WHERE j.id IS NULL"""),
    Check("chain", "the positions of chain {} are {} from {} to {}",
          """SELECT chain_id, count(*), min(position), max(position) FROM towline_job
              GROUP BY chain_id
             HAVING min(position) <> 0 OR max(position) + 1 <> count(*)
                 OR count(DISTINCT position) <> count(*)"""),
    Check("chain", "chain {} has state {}, its last job {} says {}",
          """WITH last AS (
                 SELECT chain_id, max(position) AS position FROM towline_job GROUP BY chain_id
             ), tail AS (
                 SELECT j.chain_id, j.id,
                        CASE WHEN l.job_id IS NOT NULL THEN 0 WHEN a.outcome = 1 THEN 1
                             WHEN a.outcome = 6 THEN 3 WHEN a.outcome IN (3, 4, 7) THEN 2
                             ELSE -1 END AS state
                   FROM towline_job AS j
                   JOIN last ON last.chain_id = j.chain_id AND last.position = j.position
                   LEFT JOIN towline_live AS l ON l.job_id = j.id
                   LEFT JOIN towline_attempt AS a ON a.job_id = j.id AND a.final = 1)
             SELECT c.id, c.state, t.id, t.state FROM towline_chain AS c
               JOIN tail AS t ON t.chain_id = c.id WHERE c.state <> t.state"""),
    Check("chain", "chain {} has state {} and ended at {}",
          """SELECT id, state, ended_at FROM towline_chain
              WHERE (state = 0) <> (ended_at IS NULL)"""),
    Check("chain", "job {} says it was continued by {}; its successor is {}",
          """SELECT j.id, a.continued_by, s.id FROM towline_job AS j
               LEFT JOIN towline_job AS s
                 ON s.chain_id = j.chain_id AND s.position = j.position + 1 AND s.position > 0
               LEFT JOIN towline_attempt AS a ON a.job_id = j.id AND a.final = 1
              WHERE s.id IS DISTINCT FROM a.continued_by
                 OR (s.id IS NOT NULL) <> (a.outcome IS NOT DISTINCT FROM 2)"""),
    Check("chain", "attempt {1} of job {0} continued, but did not end it",
          """SELECT job_id, number FROM towline_attempt
              WHERE final IS NULL AND (outcome = 2 OR continued_by IS NOT NULL)"""),
    # ---- blockers
    Check("stuck", "job {} is blocked by {} chains, but {} of its blockers are unfinished",
          f"""SELECT j.id, l.open_blockers, {UNFINISHED} FROM towline_live AS l
                JOIN towline_job AS j ON j.id = l.job_id
               WHERE l.state = 2 AND l.open_blockers <> {UNFINISHED}"""),
    Check("stuck", "job {} is blocked, but all its blockers have ended",
          f"""SELECT j.id FROM towline_live AS l JOIN towline_job AS j ON j.id = l.job_id
               WHERE l.state = 2 AND {UNFINISHED} = 0"""),
    Check("stuck", "job {} is blocked behind chain {}, whose end should have failed it",
          """SELECT j.id, c.id FROM towline_live AS l JOIN towline_job AS j ON j.id = l.job_id
               JOIN towline_blocker AS b ON b.job_id = j.id
               JOIN towline_chain AS c ON c.id = b.chain_id
              WHERE l.state = 2 AND j.policy = 0 AND c.state IN (2, 3)"""),
    # Under policy "run" a job may have been running when its failed blocker was retried.
    Check("early", "job {} may run or runs, but chain {} that it waits for is not completed",
          """SELECT j.id, c.id FROM towline_live AS l JOIN towline_job AS j ON j.id = l.job_id
               JOIN towline_blocker AS b ON b.job_id = j.id
               JOIN towline_chain AS c ON c.id = b.chain_id
              WHERE l.state <> 2 AND j.policy <> 2 AND c.state <> 1"""),
    Check("edge", "open job {} was given {} blockers and has {}",
          """SELECT j.id, j.blockers, count(b.job_id) FROM towline_live AS l
               JOIN towline_job AS j ON j.id = l.job_id
               LEFT JOIN towline_blocker AS b ON b.job_id = j.id
              GROUP BY j.id HAVING count(b.job_id) <> j.blockers"""),
    Check("edge", "an edge from chain {} to job {}: one of them does not exist",
          """SELECT chain_id, job_id FROM towline_blocker
              WHERE chain_id NOT IN (SELECT id FROM towline_chain)
                 OR job_id NOT IN (SELECT id FROM towline_job)"""),
    # ---- keys
    # Those that are behind another open one, in the line of their key, do not count.
    Check("key", "{} open chains of task {} have the key {}",
          """SELECT count(*), c.task, j.key FROM towline_chain AS c
               JOIN towline_job AS j ON j.id = c.id
              WHERE c.state = 0 AND j.key IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM towline_job AS w
                                  JOIN towline_live AS l ON l.job_id = w.id AND l.state = 2
                                  JOIN towline_blocker AS b ON b.job_id = w.id AND b.in_line = 1
                                  JOIN towline_chain AS o ON o.id = b.chain_id AND o.state = 0
                                 WHERE w.chain_id = c.id)
              GROUP BY c.task, j.key HAVING count(*) > 1
          """),
    Check("line", "{} jobs are behind chain {} in the line of its key",
          """SELECT count(*), b.chain_id FROM towline_blocker AS b
               JOIN towline_live AS l ON l.job_id = b.job_id
              WHERE b.in_line = 1 GROUP BY b.chain_id HAVING count(*) > 1"""),
    Check("key", "open chain {} does not hold its key {}",
          """SELECT c.id, j.key FROM towline_chain AS c JOIN towline_job AS j ON j.id = c.id
               LEFT JOIN towline_key AS k
                 ON k.task = c.task AND k.key = j.key AND k.chain_id = c.id
              WHERE c.state = 0 AND j.key IS NOT NULL AND k.key IS NULL
                AND NOT EXISTS (SELECT 1 FROM towline_blocker AS b
                                  JOIN towline_live AS l ON l.job_id = b.job_id
                                 WHERE b.chain_id = c.id AND b.in_line = 1)"""),
    Check("key", "key {} of task {} is held by chain {}, which has another end or does not exist",
          """SELECT k.key, k.task, k.chain_id FROM towline_key AS k
               LEFT JOIN towline_chain AS c ON c.id = k.chain_id AND c.task = k.task
               LEFT JOIN towline_job AS j ON j.id = c.id AND j.key = k.key
              WHERE j.id IS NULL OR c.ended_at IS DISTINCT FROM k.ended_at"""),
    Check("key", "job {} of chain {} has lost the chain's key",
          """SELECT j.id, j.chain_id FROM towline_job AS j
               JOIN towline_job AS f ON f.id = j.chain_id WHERE j.key IS DISTINCT FROM f.key"""),
    # ---- roll-ups
    Check("rollup", "{} jobs of queue {}, task {} are counted with outcome {}; there are {}",
          """SELECT sum(number), queue, task, outcome, sum(found) FROM (
                 SELECT queue, task, outcome, ended - removed AS number, 0 AS found
                   FROM towline_rollup
                 UNION ALL
                 SELECT j.queue, j.task, a.outcome, 0, 1 FROM towline_attempt AS a
                   JOIN towline_job AS j ON j.id = a.job_id WHERE a.final = 1) AS u
              GROUP BY 2, 3, 4 HAVING sum(number) <> sum(found)"""),
)  # fmt: skip

# What may remain open when clean workers have nothing left to do: jobs that wait, by policy, for
# a failure to be retried, and whatever waits for those.
REMAINING = """
WITH RECURSIVE excused(id) AS (
    SELECT j.id FROM towline_live AS l JOIN towline_job AS j ON j.id = l.job_id
      JOIN towline_blocker AS b ON b.job_id = j.id JOIN towline_chain AS c ON c.id = b.chain_id
     WHERE l.state = 2 AND j.policy = 1 AND c.state IN (2, 3)
    UNION
    SELECT l.job_id FROM excused AS e JOIN towline_job AS j ON j.id = e.id
      JOIN towline_blocker AS b ON b.chain_id = j.chain_id
      JOIN towline_live AS l ON l.job_id = b.job_id AND l.state = 2)
SELECT job_id, state FROM towline_live WHERE job_id NOT IN (SELECT id FROM excused)"""


# A sound database, by its own word: rows are what is wrong with it.
SOUND_SQLITE = "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"
SOUND_POSTGRES = """
SELECT 'index ' || indexrelid::regclass || ' is invalid' FROM pg_index WHERE NOT indisvalid"""

Reader = Any
"""A connection of the auditor's own, in autocommit; of sqlite3 or of psycopg."""


def open_reader(url: str) -> Reader:
    if not url.startswith("sqlite"):
        return psycopg.connect(url, autocommit=True)
    reader = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    reader.execute("PRAGMA wal_autocheckpoint = 0")
    return reader


def is_sqlite(reader: Reader) -> bool:
    return isinstance(reader, sqlite3.Connection)


def ask(reader: Reader, sql: str) -> list[tuple[Any, ...]]:
    """What a statement finds, on either database."""
    if is_sqlite(reader):
        sql = sql.replace("IS NOT DISTINCT FROM", "IS").replace("IS DISTINCT FROM", "IS NOT")
        return list(reader.execute(sql))
    return list(reader.execute(sql.encode()))


def audit_tables(reader: Reader, *, healed: bool = False, sound: bool = False) -> list[Finding]:
    """Compare the tables with each other in one snapshot; `healed`: nothing may be left to do;
    `sound`: ask the database about its own health, too."""
    reader.execute("BEGIN" if is_sqlite(reader) else "BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        found = [
            Finding(check.kind, check.text.format(*row))
            for check in CHECKS
            for row in ask(reader, check.sql)
        ]
        if healed:
            found += [
                Finding("stuck", f"job {id} is left over in live state {state}")
                for id, state in ask(reader, REMAINING)
            ]
        if healed or sound:
            unsound = SOUND_SQLITE if is_sqlite(reader) else SOUND_POSTGRES
            found += [Finding("integrity", str(text)) for (text,) in ask(reader, unsound)]
    finally:
        reader.execute("COMMIT")
    return found


def audit_logs(reader: Reader, logs: Logs) -> list[Finding]:
    """Compare what the processes wrote down with the tables; run after everything has stopped."""
    found = list(logs.findings)
    found += _audit_new(reader, logs)
    found += _audit_claims(reader, logs)
    found += _audit_endings(reader, logs)
    return found


def _audit_new(reader: Reader, logs: Logs) -> Iterator[Finding]:
    """Every acknowledged job is there or was deleted; nothing else is; nothing is there twice."""
    stored: dict[str, tuple[int, int]] = {}
    for token, id, chain in ask(reader, "SELECT label, id, chain_id FROM towline_job"):
        if token in stored:
            yield Finding("twice", f"{token} is stored as jobs {stored[token][0]} and {id}")
        stored[token] = (id, chain)
    ids: dict[int, str] = {}
    gone = logs.left | logs.leaving
    for token, id, chain in logs.new:
        if ids.setdefault(id, token) != token:
            yield Finding("twice", f"id {id} was given to {ids[id]} and to {token}")
        if token not in stored:
            if chain not in gone:
                yield Finding("lost", f"{token} was acknowledged as job {id} and is gone")
        elif stored[token] != (id, chain):
            yield Finding("row", f"{token} is job {stored[token][0]}, not {id} as was said")
    for token in stored:
        if token in logs.none:
            yield Finding("row", f"{token} was rolled back or refused, and is stored")
        elif token not in logs.maybe:
            yield Finding("row", f"{token} is stored, and nobody ever wanted to")
    chains = {id for (id,) in ask(reader, "SELECT id FROM towline_chain")}
    for chain in sorted(chains & logs.left):
        yield Finding("row", f"chain {chain} was deleted and is still there")
    # The application's own row stands or falls with the job it was written with.
    booked = dict(ask(reader, "SELECT token, chain_id FROM booking"))
    for token in sorted(booked.keys() - stored.keys()):
        if booked[token] not in gone:
            yield Finding("lost", f"{token} committed with the caller's row, and is gone")
    for token in sorted(t for t in stored.keys() - booked.keys() if t.startswith(OWN)):
        yield Finding("row", f"{token} is stored without the caller's row")


def _audit_claims(reader: Reader, logs: Logs) -> Iterator[Finding]:
    """An attempt number is handed out once, later claims get higher ones, leases are respected.

    Of a claim and of an end we know a time before it happened, the one that is stored. Where many
    write at a time only the claimer can say when it had happened at the latest.
    """
    seen: dict[tuple[int, int], str] = {}
    latest: dict[tuple[int, int], int] = {}
    for id, number, _, until, by in logs.claims:
        if (id, number) in seen:
            yield Finding("twice", f"attempt {number} of job {id}: {seen[id, number]} and {by}")
        seen[id, number] = by
        latest[id, number] = until
    last: dict[int, tuple[int, int]] = {}
    for id, number, at, until, _ in sorted(logs.claims):
        before, earlier = last.get(id, (0, 0))
        if until < earlier:
            yield Finding("twice", f"attempt {number} of job {id} was claimed before {before}")
        last[id] = (number, at)
    for id, number, ended_at, next in ask(
        reader,
        """SELECT a.job_id, a.number, a.ended_at, m.number
             FROM towline_attempt AS a JOIN towline_attempt AS m
               ON m.job_id = a.job_id AND m.number > a.number AND m.started_at < a.ended_at""",
    ):
        if is_sqlite(reader) or latest.get((id, next), ended_at) < ended_at:
            yield Finding("early", f"job {id} was started again before attempt {number} had ended")
    for id, number, worker, at in ask(
        reader,
        """SELECT job_id, number, worker, ended_at FROM towline_attempt
            WHERE outcome = 7 AND error LIKE 'worker % died or lost its lease%'""",
    ):
        if worker is None or logs.process(worker) in logs.killed:
            continue
        if any(since < at < until for since, until in logs.leases.get(worker, ())):
            yield Finding("fence", f"attempt {number} of job {id} was taken from living {worker}")


def _audit_endings(reader: Reader, logs: Logs) -> Iterator[Finding]:
    """Every ended attempt is one that somebody asked for, and every accepted one is there."""
    labels = dict(ask(reader, "SELECT id, label FROM towline_job"))
    found: dict[str, int] = {}
    for row in ask(
        reader,
        """SELECT job_id, number, outcome, continued_by, coalesce(ended_by, output, error), blocker
             FROM towline_attempt ORDER BY job_id, number""",
    ):
        id, number, outcome, continued_by, text, blocker = row
        name = f"attempt {number} of job {id}"
        if blocker is not None or outcome == LOST:
            continue
        token = json.loads(text) if str(text).startswith('"') else text
        ending = logs.endings.get(token)
        if ending is None:
            yield Finding("fence", f"{name} ended with {text!r}, which nobody asked for")
            continue
        if ending.get("many"):
            continue
        if token in found:
            yield Finding("twice", f"{token} ended an attempt of job {found[token]} and {name}")
        found[token] = id
        asked = (
            ending.get("job", id), ending.get("attempt", number), OUTCOMES[ending["outcome"]],
        )  # fmt: skip
        if asked != (id, number, outcome):
            yield Finding("fence", f"{name} has outcome {outcome}, but {token} asked for {asked}")
        if token in logs.refused:
            yield Finding("fence", f"{name} was ended by {token}, which was told it was refused")
        if outcome == CONTINUED and labels.get(continued_by) != ending.get("next"):
            yield Finding("chain", f"{name} was continued by another job than {token} asked for")
    for token in logs.ended - found.keys():
        ending = logs.endings[token]
        if ending.get("job") in labels and not ending.get("many") and ending.get("started", True):
            yield Finding("lost", f"{token} was told that it ended job {ending['job']}: no row")
