"""Bugs that show to whoever looks, with one transaction after another."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tests.mutants.mutant import POSTGRES, SQLITE, Edit, Mutant, in_each
from towline.operation import Query, Steps
from towline.postgres.heads import Heads
from towline.records import NewJob
from towline.store import finish, key
from towline.store.finish import Verdict
from towline.store.ground import Ground

# Statements whose rows pass only under (job, attempt, worker).
FENCED_IN_SQLITE = (
    "record_attempts", "put_back", "park_jobs", "record_begins", "record_progress",
)  # fmt: skip
SETTLED = ("settle_attempts", "find_settled")  # there of many at once
# What follows the attempt in the list of columns of the same name.
STANDING = "l.used, l.lost, l.open_blockers, l.run_at, l.started_at, l.progress, l.progress_text"
FENCED = (*FENCED_IN_SQLITE, "hold_running", "still_running", "settle_jobs")
FENCE = "l.attempt = r.attempt AND l.state::integer = 3"
ANY_WORKER = in_each(FENCED, "AND l.worker IS NOT DISTINCT FROM coalesce(r.held_by, l.worker)", "")
ANY_WORKER_IN_SQLITE = (
    *in_each(
        FENCED_IN_SQLITE, "worker IS coalesce(:held_by, worker)", "coalesce(:held_by, 0) >= 0"
    ),
    *in_each(
        SETTLED,
        "l.worker IS CASE WHEN r.key >= 0 THEN coalesce(:held_by, l.worker) END",
        "coalesce(:held_by, 0) >= 0",
    ),
)
ANY_STATE_IN_SQLITE = (
    *in_each(FENCED_IN_SQLITE, "state = 3 AND", "state IN (0, 1, 2, 3, 4) AND"),
    *in_each(SETTLED, "l.state = 3 + 0 * r.key AND", "l.state IN (0, 1, 2, 3, 4) AND"),
)
ANY_ATTEMPT_IN_SQLITE = (
    *in_each(FENCED_IN_SQLITE, "attempt = :attempt", ":attempt > 0"),
    *in_each(SETTLED, "AND l.attempt = json_extract(r.value, '$[1]')", ""),
)

# An ending that passes writes the row of whatever attempt runs, not of the one it was told of.
WHATEVER_RUNS = (
    Edit("record_attempts", "SELECT l.started_at,", "SELECT l.attempt AS running, l.started_at,"),
    Edit("record_attempts", "SELECT r.*, ", "SELECT r.*, l.running, "),
    Edit("settle_jobs", "SELECT l.ctid", "SELECT l.attempt AS running, l.ctid"),
    Edit("settle_jobs", "SELECT l.row,", "SELECT l.running, l.row,"),
    Edit("record_attempts", "h.job_id, h.attempt, h.outcome", "h.job_id, h.running, h.outcome"),
    Edit("settle_jobs", "SELECT job_id, attempt, outcome, 1", "SELECT job_id, running, outcome, 1"),
)  # fmt: skip

LEASE = "conformance/test_lease.py::{}[{{database}}: ours, blocking]"
FENCES = "conformance/test_fence.py::{}[{{database}}: ours, blocking]"
LINE = "conformance/test_line.py::{}[{{database}}: ours, blocking]"
ROW = "conformance/test_worker_row.py::{}[{{database}}: ours, blocking]"
SNAPSHOT = "postgres/test_old_snapshot.py::{}[{{database}}]"
NUMBERS = (
    "conformance/test_claim.py::"
    "test_L1_each_claim_gives_out_the_next_attempt_number_whatever_came_between"
    "[{database}: ours, blocking]"
)


def from_the_heads_for_ever(self: Heads, queues: Sequence[str], now: int) -> object:
    found = [{"value": q, "priority": p, "head": head} for (q, p), head in self._heads.items()]
    return found or None


def commit_before_consequences(
    store: Ground, over: Sequence[Verdict], now: int, *, alone: bool
) -> Steps[None]:
    """The continuation comes in a transaction of its own."""
    if any(verdict.successor is not None for verdict in over):
        yield Query("commit", "COMMIT")()
        yield Query("begin", "BEGIN")()
    yield from _consequences(store, over, now, alone=alone)


_consequences = finish._consequences


def replace_or_drop(
    store: Ground, jobs: list[NewJob], name: key.Name, index: int, own: int, now: int
) -> Steps[int | None]:
    """What comes for a job that has started changes nothing, and is not stored."""
    if jobs[index].on_conflict == "latest":
        jobs[index] = replace(jobs[index], on_conflict="replace")
    return (yield from _ask(store, jobs, name, index, own, now))


_ask = key._ask

PLAIN = [
    Mutant(
        "latest drops what comes while it runs",
        "A call with on_conflict=latest is given the running job, and its arguments are lost.",
        "Y4",
        [LINE.format("test_Y4_the_newest_arguments_run_one_runs_and_at_most_one_waits")],
        methods={"towline.store.key._ask": replace_or_drop},
        on=(SQLITE, POSTGRES),
        sign="assert (False, False) == (True, True)",
    ),
    Mutant(
        "no fence",
        "Whoever says that a job has ended is believed.",
        "L3",
        [LEASE.format("test_L3_a_lost_lease_changes_nothing")],
        {
            POSTGRES: [*ANY_WORKER, *in_each(FENCED, f" AND {FENCE}", ""), *WHATEVER_RUNS],
            SQLITE: [
                *ANY_WORKER_IN_SQLITE,
                *ANY_STATE_IN_SQLITE,
                *ANY_ATTEMPT_IN_SQLITE,
            ],
        },
        sign="[1] == []",
    ),
    Mutant(
        "fence by state only",
        "An ending passes while the job runs, under whatever attempt.",
        "L3",
        [LEASE.format("test_L3_a_lost_lease_changes_nothing")],
        {
            POSTGRES: [
                *ANY_WORKER,
                *in_each(FENCED, "l.attempt = r.attempt AND ", ""),
                *WHATEVER_RUNS,
            ],
            SQLITE: [
                *ANY_WORKER_IN_SQLITE,
                *ANY_ATTEMPT_IN_SQLITE,
            ],
        },
        sign="[1] == []",
    ),
    Mutant(
        "fence by worker only",
        "An ending passes while the job runs in the name of this worker, under whatever attempt.",
        "L3",
        [
            FENCES.format(
                "test_L3_a_worker_that_runs_a_job_again_is_fenced_from_its_own_earlier_attempt"
            )
        ],
        {
            POSTGRES: [*in_each(FENCED, "l.attempt = r.attempt AND ", ""), *WHATEVER_RUNS],
            SQLITE: ANY_ATTEMPT_IN_SQLITE,
        },
        sign="([1], []) == ([], [1])",
    ),
    Mutant(
        "fence by attempt only",
        "An ending passes under the number that the job last ran with, though it only waits.",
        "L3",
        [FENCES.format("test_L3_an_attempt_that_was_given_back_cannot_be_ended_any_more")],
        {
            POSTGRES: [*ANY_WORKER, *in_each(FENCED, " AND l.state::integer = 3", "")],
            SQLITE: [
                *ANY_WORKER_IN_SQLITE,
                *ANY_STATE_IN_SQLITE,
            ],
        },
        sign="([1], []) == ([], [1])",
    ),
    Mutant(
        "fence without worker",
        "An ending passes under a number that a database gave out twice, to two workers.",
        "L3",
        [
            FENCES.format(
                "test_L3_a_number_that_is_given_out_again_is_of_no_use_to_who_had_it_first"
            )
        ],
        {POSTGRES: ANY_WORKER, SQLITE: ANY_WORKER_IN_SQLITE},
        sign="([1], []) == ([], [1])",
    ),
    Mutant(
        "attempt counted at the end",
        "A claim stores no number; it is counted when the job is put back.",
        "L1",
        [NUMBERS],
        {
            POSTGRES: [
                Edit("claim_pending", "attempt = l.attempt + 1, ", ""),
                Edit(
                    "claim_pending",
                    "l.job_id, l.attempt, l.queue",
                    "l.job_id, l.attempt + 1 AS attempt, l.queue",
                ),
                *in_each(FENCED, "l.attempt = r.attempt", "l.attempt + 1 = r.attempt"),
                *in_each(
                    ("find_lost", "find_running_of"), "l.attempt, l.queue", "l.attempt + 1, l.queue"
                ),
                Edit(
                    "job_records",
                    "{l.standing}, w.name",
                    f"l.state, l.attempt + (l.state = 3)::integer, {STANDING}, w.name",
                ),
                Edit(
                    "put_back", "SET state = h.state,", "SET state = h.state, attempt = h.attempt,"
                ),
            ],
            SQLITE: [
                Edit("claim_jobs", "attempt = attempt + 1", "attempt = attempt"),
                Edit("record_attempts", "SELECT job_id, attempt,", "SELECT job_id, attempt + 1,"),
                Edit(
                    "settle_attempts",
                    "SELECT l.job_id, l.attempt,",
                    "SELECT l.job_id, l.attempt + 1,",
                ),
                *in_each(FENCED_IN_SQLITE, "attempt = :attempt", "attempt = :attempt - 1"),
                *in_each(
                    SETTLED,
                    "= json_extract(r.value, '$[1]')",
                    "= json_extract(r.value, '$[1]') - 1",
                ),
                *in_each(
                    ("find_lost", "find_running_of"), "l.attempt, l.queue", "l.attempt + 1, l.queue"
                ),
                Edit(
                    "job_records",
                    "{l.standing}, w.name",
                    f"l.state, l.attempt + (l.state = 3), {STANDING}, w.name",
                ),
                Edit(
                    "put_back", "SET state = :state,", "SET state = :state, attempt = attempt + 1,"
                ),
            ],
        },
        sign="5, 6, 7, 7, 8] ==",
    ),
    Mutant(
        "attempt lowered on release",
        "A released job gets the number back that it was claimed under.",
        "L1",
        [NUMBERS],
        {
            POSTGRES: [
                Edit(
                    "put_back",
                    "SET state = h.state,",
                    "SET state = h.state, attempt = l.attempt - (h.state = 0)::integer,",
                )
            ],
            SQLITE: [
                Edit(
                    "put_back",
                    "SET state = :state,",
                    "SET (state, attempt) ="
                    " (SELECT s.new, attempt - (s.new = 0) FROM (SELECT :state AS new) AS s),",
                )
            ],
        },
        sign="[1, 1, 2",
    ),
    Mutant(
        "continuation in a second transaction",
        "The job's end is committed before its continuation is stored.",
        "C1, O1",
        [
            "conformance/test_chain.py::"
            "test_C1_the_continuation_is_stored_in_the_commit_that_completes_its_predecessor"
            "[{database}: ours, blocking]"
        ],
        methods={"towline.store.finish._consequences": commit_before_consequences},
        on=(POSTGRES, SQLITE),
        sign="State.COMPLETED",
    ),
    Mutant(
        "sweep without crash limit",
        "A job that kills every worker is given to the next one for ever.",
        "L4, O11",
        [LEASE.format("test_L4_a_job_that_kills_its_worker_every_time_fails_at_the_crash_limit")],
        methods={"towline.store.ground.Ground.crash_limit": 10**9},
        on=(POSTGRES, SQLITE),
        sign="State.SCHEDULED",
    ),
    Mutant(
        "sweep without batch limit",
        "One transaction takes back everything that a crowd of dead workers held.",
        "L5",
        [
            ROW.format(
                "test_L5_a_sweep_takes_a_bounded_number_and_the_worker_goes_with_its_last_job"
            )
        ],
        {
            POSTGRES: [Edit("find_lost", "LIMIT :limit", "LIMIT :limit + 1000000")],
            SQLITE: [Edit("find_lost", "LIMIT :limit", "LIMIT :limit + 1000000")],
        },
        sign="[(5, 1)",
    ),
    Mutant(
        "sweep without state test",
        "What no living worker holds counts as lost, though it only waits.",
        "L5, O11",
        [FENCES.format("test_L5_O11_a_sweep_takes_what_runs_and_nothing_else")],
        {
            POSTGRES: [
                Edit("find_lost", "WHERE state = 3\n           AND", "WHERE"),
                *in_each(FENCED, " AND l.state::integer = 3", ""),
            ],
            SQLITE: [
                Edit("find_lost", "WHERE state = 3\n           AND", "WHERE"),
                *ANY_STATE_IN_SQLITE,
            ],
        },
        sign="6 == 1",
    ),
    Mutant(
        "claims over what is gone",
        "Under an old snapshot each claim walks over all that was claimed since it began.",
        "P7",
        [SNAPSHOT.format("test_P7_claims_do_not_walk_over_what_was_claimed_before")],
        methods={"towline.postgres.store.PostgresStore.many_passed": 10**9},
        on=(POSTGRES,),
        sign="0 >= 10",
    ),
    Mutant(
        "no whole claim",
        "Under an old snapshot jobs that come back, or have another priority, are never found.",
        "P7, L6",
        [SNAPSHOT.format("test_P7_what_is_hidden_from_such_a_claim_is_found_a_moment_later")],
        methods={"towline.postgres.heads.Heads.ranges": from_the_heads_for_ever},
        on=(POSTGRES,),
        sign="<= {",
    ),
    Mutant(
        "pause of every queue by name only",
        "A claim looks for the pause of its own queue, and not for that of all.",
        "L8",
        [
            "conformance/test_served.py::test_L8_a_pause_of_every_queue_is_also_one_of_those_not_"
            "used_yet[{database}: ours, blocking]"
        ],
        {
            POSTGRES: [
                Edit(
                    "claim_pending",
                    "AND NOT EXISTS (SELECT 1 FROM {queue} AS e WHERE e.name = '*')",
                    "",
                )
            ],
            SQLITE: [
                Edit(
                    "find_pending",
                    "AND NOT EXISTS (SELECT 1 FROM {queue} WHERE name = '*')",
                    "",
                )
            ],
        },
        sign=" == []",
    ),
]
