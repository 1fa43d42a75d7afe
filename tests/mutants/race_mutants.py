"""Bugs that show only when transactions overlap. SQLite has one writer, so there are none there."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mutants.mutant import POSTGRES, Edit, Mutant, in_each
from towline.model import Policy
from towline.operation import Mark, Row, Steps
from towline.postgres.store import PostgresStore
from towline.store.finish import Verdict
from towline.store.ground import Ground

INTERLEAVED = "races/test_interleavings.py::test_every_order_of_statements_ends_well[{}]"
WITH_OLD_SNAPSHOT = (
    "races/test_interleavings.py::test_a_caller_with_an_old_snapshot_is_right_or_refused[{}]"
)
OVERLAPPING = "races/test_overlapping_transactions.py::{}[{{database}}]"
# The row in {live} of each chain's last job is held, instead of the chain's own.
TAIL = """
WITH held AS MATERIALIZED (
    SELECT l.job_id
      FROM {live} AS l
     WHERE l.job_id IN (
           SELECT coalesce((SELECT k.id FROM {job} AS k
                             WHERE k.chain_id = x.value::bigint AND k.position > 0
                             ORDER BY k.position DESC LIMIT 1), x.value::bigint)
             FROM json_array_elements_text(:chains::text::json) AS x)
     ORDER BY l.job_id
       FOR SHARE OF l WAIT
)
SELECT COLUMNS
  FROM {chain} AS c
 WHERE c.id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:chains::text::json)))
   AND (SELECT count(*) FROM held) >= 0
"""
UNBLOCK_BY_NOT_EXISTS = """
UPDATE {live} AS l
   SET open_blockers = 0, state = CASE WHEN l.run_at > r.now THEN 1 ELSE 0 END
  FROM json_to_recordset(:rows::text::json) AS r(ended integer, now bigint, job_id bigint)
 WHERE l.job_id = r.job_id AND l.state::integer = 2
   AND NOT EXISTS (SELECT 1
                     FROM {blocker} AS b
                     JOIN {chain} AS c ON c.id = b.chain_id
                     JOIN {job} AS j ON j.id = b.job_id
                    WHERE b.job_id = l.job_id
                      AND (c.state = 0 OR (c.state <> 1 AND j.policy <> RUN)))
"""
NOT_WAITING = (
    "claim_pending", "find_parked", "hold_blocked", "hold_ending", "hold_running",
    "hold_workers", "park_jobs", "promote_due", "put_back", "read_mark", "record_attempts",
    "record_progress", "renew_worker", "settle_jobs",
)  # fmt: skip
WAITING_OR_NOT = ("hold_chains", "hold_doomed", "hold_keys", "share_chains")


def settle_in_one_statement(
    self: PostgresStore, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
) -> Steps[list[Verdict]]:
    """Neither the chains' locks nor a look at who waits for them come before the end."""
    steps = _settle(self, verdicts, worker, slot, now)
    try:
        statement = next(steps)
        while True:
            rows: list[Row] = []
            if isinstance(statement, Mark):
                rows = yield statement
            elif statement.query.name == "hold_ending":
                rows = [(statement.params[0], "read committed")]
            else:
                rows = yield statement
            statement = steps.send(rows)
    except StopIteration as stop:
        settled: list[Verdict] = stop.value
        return settled


_settle = PostgresStore.settle

RACING = [
    Mutant(
        "select, then update",
        "A claim looks for pending jobs, and takes for its own what it has seen.",
        "L1",
        [INTERLEAVED.format("claim, claim")],
        {
            POSTGRES: [
                Edit("claim_pending", "FOR UPDATE SKIP LOCKED", ""),
                Edit("claim_pending", " AND l.state::integer = 0", ""),
                Edit("claim_pending", "SELECT x.row", "SELECT x.attempt, x.row"),
                Edit(
                    "claim_pending",
                    "l.ctid = f.row",
                    "l.job_id = (SELECT r.job_id FROM r WHERE r.row = f.row)",
                ),
                Edit(
                    "claim_pending", "l.job_id, l.priority\n", "l.job_id, l.priority, l.attempt\n"
                ),
                Edit(
                    "claim_pending",
                    "attempt = l.attempt + 1",
                    "attempt = (SELECT r.attempt + 1 FROM r WHERE r.job_id = l.job_id)",
                ),
            ]
        },
        sign="given out: [1, 1]",
    ),
    Mutant(
        "tail locked instead of chain",
        "Who begins to wait for a chain holds its last job, which may no longer be its last.",
        "B3, B4",
        [
            OVERLAPPING.format(
                "test_B3_B4_a_chain_that_goes_on_and_ends_while_somebody_enqueues_behind_it"
                "_frees_the_job"
            )
        ],
        {
            POSTGRES: [
                Edit(
                    "chain_states",
                    None,
                    TAIL.replace("COLUMNS", "c.id, c.state, c.created_at").replace("WAIT", ""),
                ),
                Edit(
                    "share_chains",
                    None,
                    TAIL.replace("COLUMNS", "c.id").replace("WAIT", "{wait}"),
                ),
            ]
        },
        sign="State.BLOCKED",
    ),
    Mutant(
        "unblock by not exists",
        "A job is freed by whoever sees no open blocker; two who end together see each other's.",
        "B2",
        [INTERLEAVED.format("finish completed, finish completed, fail")],
        {
            POSTGRES: [
                Edit("hold_blocked", "FOR UPDATE OF l SKIP LOCKED", ""),
                Edit(
                    "unblock_jobs",
                    None,
                    UNBLOCK_BY_NOT_EXISTS.replace("RUN", str(int(Policy.RUN))),
                ),
            ]
        },
        sign="stuck: ",
    ),
    Mutant(
        "unordered unblocking",
        "Jobs behind a chain are taken by their ids, every other time from the last to the first.",
        "P5",
        [
            OVERLAPPING.format(
                "test_P5_callers_who_end_blockers_of_the_same_jobs_take_them_in_one_order"
            )
        ],
        {
            POSTGRES: [
                Edit(
                    "unblock_jobs",
                    "ORDER BY job_id",
                    "ORDER BY job_id * (SELECT 1 - 2 * (nextval('{job_ids}') % 2))",
                )
            ]
        },
        sign="DeadlockDetected",
    ),
    Mutant(
        "dedup by look-up",
        "Whether a key is free is looked up; it is then taken in any case.",
        "D1",
        [INTERLEAVED.format("dedup, dedup, open ours")],
        {
            POSTGRES: [
                Edit(
                    "take_key",
                    """
     WHERE k.ended_at IS NOT NULL
       AND k.created_at <= (SELECT r.expired FROM r WHERE r.chain_id = excluded.chain_id)""",
                    "",
                )
            ]
        },
        sign="key: 2 open",
    ),
    Mutant(
        "after without holding the chain",
        "Who goes behind the chain that had the key takes the key from whoever has it by then.",
        "Y2",
        [INTERLEAVED.format("after, after ours")],
        {POSTGRES: [Edit("pass_key", " AND k.chain_id = r.was", "")]},
        sign="2 jobs are behind chain",
    ),
    Mutant(
        "one-statement finish",
        "Who waits for a chain is looked up by the statement that takes the chain's lock.",
        "B3",
        [INTERLEAVED.format("enqueue ours behind, finish completed, fail")],
        {
            POSTGRES: [
                Edit(
                    "settle_jobs",
                    "unnest(:taken::text::bigint[]) AS t(id)",
                    "(SELECT c.id FROM {chain} AS c WHERE c.id = ANY (:taken::text::bigint[])"
                    " FOR NO KEY UPDATE OF c) AS t",
                ),
            ]
        },
        {"towline.postgres.store.PostgresStore.settle": settle_in_one_statement},
        sign="stuck: ",
    ),
    Mutant(
        "ending with an old snapshot",
        "A caller's REPEATABLE READ transaction may end a chain: it does not see who waits for it.",
        "B2, B3, O1",
        [
            "postgres/test_isolation.py::test_P1_nobody_waits_for_ever_whatever_a_caller_with"
            "_an_old_snapshot_did[{database}]",
            WITH_OLD_SNAPSHOT.format("enqueue behind, completed repeatable read"),
            WITH_OLD_SNAPSHOT.format("enqueue behind, finish serializable"),
        ],
        methods={"towline.postgres.isolation.refuse_old_snapshot": lambda rows: None},
        on=(POSTGRES,),
        sign="blocked",
    ),
    Mutant(
        "a worker waits",
        "Nothing is passed over: a worker's turn stands still behind any caller.",
        "P5, P9",
        [INTERLEAVED.format("enqueue caller behind, finish completed, fail")],
        {
            POSTGRES: [
                *in_each(NOT_WAITING, "SKIP LOCKED", ""),
                *in_each(WAITING_OR_NOT, "{wait}", "/* {wait} */"),
            ]
        },
        sign="wait: finish",
    ),
    Mutant(
        "sweep without the worker's row",
        "A sweep goes by the lease that it read, though the worker may renew it meanwhile.",
        "L9",
        [INTERLEAVED.format("sweep, renew")],
        methods={"towline.postgres.store.PostgresStore.hold_workers": Ground.hold_workers},
        on=(POSTGRES,),
        sign="taken back: 1",
    ),
    Mutant(
        "claim without the worker's row",
        "A worker claims while it is being swept: what nobody has run counts as lost.",
        "L3, O11",
        [INTERLEAVED.format("sweep, claim")],
        {POSTGRES: [Edit("claim_pending", "FOR KEY SHARE SKIP LOCKED", "")]},
        sign="workers: 0, not 1",
    ),
]
