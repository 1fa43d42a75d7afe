"""What becomes of a call whose key another chain has, beyond being given that chain.

    replace   the job that has the key gets these arguments, if it never started
    after     a new chain behind the one that has the key; from now on it has the key itself
    latest    replace, or after when that one has started: one runs, at most one waits

So the chains of a key stand in a *line*: each waits for the one before it by an edge that says so
(in_line), and the key is the last one's. Whoever goes behind a chain shares it before he
takes its key, and takes the key from that chain only: of several at once each goes behind another.
One that ends while it still waits leaves the line, and those behind it close up.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import DuplicateKey, StoreError
from ..model import CHAIN_STATES, ChainState, Live, Policy
from ..operation import Steps
from ..records import ChainRecord, JobRecord, NewBlocker, NewJob
from . import read, waiting
from .cascade import BAD
from .ground import FOREVER, Ground, as_json, int_of
from .replacing import Replacement, lined_up, replace_held, replaced, waits_anew

KEY_MISSES = 1000  # of keys that no chain has and none can take: far more than chains that go
TAKE_KEY = ("task", "key", "chain_id", "now", "expired")
PASS_KEY = ("chain_id", "now", "task", "key", "was")
LINED_UP = ("after", "latest")
REPLACING = ("replace", "latest")

Name = tuple[str, str]  # task and key
OPEN = ChainState.OPEN


def take_in_line(
    store: Ground, jobs: list[NewJob], name: Name, indexes: Sequence[int], ids: Sequence[int],
    now: int,
) -> Steps[dict[int, int]]:  # fmt: skip
    """Take one key for these jobs of a batch, in their order, changing what is behind another or
    replaces it; return who has it of those that were not stored."""
    taken: dict[int, int] = {}
    first = last = None  # of these: who took the key from outside, and who has it now
    for place, index in enumerate(indexes):
        job = jobs[index]
        if last is None:
            holder = yield from _ask(store, jobs, name, index, ids[place], now)
            if holder is None:
                first = last = place
            else:
                taken[index] = holder
        elif job.on_conflict == "after":
            jobs[index] = _behind(job, NewBlocker(index=indexes[last]))
            last = place
        else:
            refuse_taken(job, ids[last])
            if job.on_conflict in REPLACING:
                before = indexes[last]
                jobs[before] = replaced(jobs[before], job)
            taken[index] = ids[last]
    if first is not None and last is not None and first != last:
        yield from _pass(store, name, ids[first], ids[last], now)
    return taken


def _ask(
    store: Ground, jobs: list[NewJob], name: Name, index: int, own: int, now: int
) -> Steps[int | None]:
    """Take the key for one job, behind the chain that has it where it says so; else return that
    chain."""
    task, key = name
    job = jobs[index]
    lined_up = job.on_conflict in LINED_UP
    for _ in range(KEY_MISSES):
        holder = yield from _holder(store, name)
        if holder is None or not lined_up:
            won = [(task, key, own, now, expired_of(job, now))]
            if (yield store.sql.take_key.counted(TAKE_KEY, won)) == [(1,)]:
                return None
            if holder is None:
                continue  # it was deleted, or taken, this moment
            refuse_taken(job, holder)
            return holder
        while holder is not None:  # whoever comes between goes before us
            if job.on_conflict == "latest":
                if waits_anew(job):
                    yield from store.share_blockers([holder])
                if (yield from store.hold_jobs([holder])):
                    again = yield from _holder(store, name)
                    if again != holder:
                        holder = again
                        continue
                if (yield from replace_held(store, Replacement(holder, job, ()), now)):
                    return holder
            states = yield store.sql.chain_states(chains=as_json([holder]))
            if states and (yield from _pass(store, name, holder, own, now)):
                state = CHAIN_STATES[int_of(states[0][1])]
                if state is ChainState.OPEN or (state in BAD and job.policy is Policy.WAIT):
                    jobs[index] = _behind(job, NewBlocker(chain_id=holder))
                return None
            holder = yield from _holder(store, name)
    raise orphan(*name)


def _holder(store: Ground, name: Name) -> Steps[int | None]:
    rows = yield store.sql.read_key(task=name[0], key=name[1])
    return int_of(rows[0][0]) if rows else None


def _pass(store: Ground, name: Name, was: int, chain: int, created_at: int) -> Steps[bool]:
    """Give a key from one chain to another; False when it is not that one's any more."""
    row = (chain, created_at, *name, was)
    ((passed,),) = yield store.sql.pass_key.counted(PASS_KEY, [row])
    return bool(passed)


def _behind(job: NewJob, before: NewBlocker) -> NewJob:
    """The same job behind the chain that had its key; it may wait for that one anyway."""
    return replace(job, blockers=lined_up(job.blockers, [before]), ordered=1)


# ---- leaving the line


def close_up(store: Ground, record: JobRecord) -> Steps[None]:
    """A job is about to end or go while it waits in its line: those behind it wait for the one
    before it instead, and if none is, that one has the key again. The caller holds the job."""
    before = yield from _before(store, record)
    if before is None:
        return
    leaving = record.chain_id
    for job in (yield from _next_in_line(store, leaving)):
        edges = (yield from read.blockers(store, [job.id])).get(job.id, ())
        positions = {edge.chain_id: edge.position for edge in edges}
        if job.live_state != Live.BLOCKED:
            continue
        if before.id not in positions and positions[leaving] < 0:
            yield store.sql.move_in_line(chain_id=before.id, was=leaving, job_id=job.id)
            continue
        yield store.sql.mark_in_line(chain_id=leaving, job_id=job.id, in_line=None)
        if before.id in positions:
            yield store.sql.mark_in_line(chain_id=before.id, job_id=job.id, in_line=1)
        else:
            edge = (before.id, job.id, min(0, *positions.values()) - 1, None, None, 1)
            yield from store.insert_edges([edge])
            yield from waiting.block_once_more(store, job)
    name = before.task, before.key or ""
    yield from _pass(store, name, leaving, before.id, before.created_at)


def stay_in_line(store: Ground, record: JobRecord, following: NewJob) -> Steps[NewJob]:
    """The continuation of a job that is ended from outside while it waits in its line: it waits
    there, too. As all that wait in a line it does not fail with a blocker: the one before it may
    still be open then, and the key, given up with that end, free for a second one beside it."""
    before = yield from _before(store, record)
    if before is None:
        return following
    if following.policy is Policy.FAIL:
        following = replace(following, policy=Policy(record.policy))
    return _behind(following, NewBlocker(chain_id=before.id))


def _before(store: Ground, record: JobRecord) -> Steps[ChainRecord | None]:
    """The open chain before a job that waits in its line, which stays open until the commit."""
    if not record.ordered or record.live_state != Live.BLOCKED:
        return None
    edges = (yield from read.blockers(store, [record.id])).get(record.id, ())
    line = [edge.chain_id for edge in edges if edge.in_line]
    states = yield store.sql.chain_states(chains=as_json(line))
    still = [int_of(id) for id, state, _ in states if CHAIN_STATES[int_of(state)] is OPEN]
    return (yield from read.chain_records(store, still))[0] if still else None


def _next_in_line(store: Ground, chain_id: int) -> Steps[list[JobRecord]]:
    """The job behind this chain in its line, as it stands until the commit, and those that were."""
    ids = [int_of(id) for (id,) in (yield store.sql.next_in_line(chain_id=chain_id))]
    if not ids:
        return []
    yield from store.hold_jobs(ids)
    return (yield from read.records(store, ids))


def is_waited_for_in_line(store: Ground, chain_id: int) -> Steps[bool]:
    """Whether the one behind this chain in its line has not begun; it stays so."""
    behind = yield from _next_in_line(store, chain_id)
    return any(job.live_state not in (None, Live.RUNNING) for job in behind)


# ---- taken


def expired_of(job: NewJob, now: int) -> int:
    """Since when a chain must have been there to be too old for this job's scope."""
    if job.scope != "any":
        return FOREVER
    return -1 if job.window is None else now - job.window


def refuse_taken(job: NewJob, holder: int) -> None:
    if job.on_conflict == "raise":
        raise DuplicateKey(f"chain {holder} already has key {job.key!r} of task {job.task}", holder)


def orphan(task: str, key: str) -> StoreError:
    """A row that no operation leaves behind."""
    return StoreError(
        f"key {key!r} of task {task} belongs to a chain that does not exist: its row was left by a "
        "change of the tables by hand; delete it from the table of keys"
    )
