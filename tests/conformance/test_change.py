"""Changing jobs that wait, running completed chains again, pruning by age and state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.kit import DAY, HOUR, Clock, claim, completed, end, failed, new, put, states
from towline.errors import DuplicateKey, InvalidState
from towline.model import Policy, State
from towline.operation import Steps
from towline.store import Store
from towline.store.retention import KeepFor


@pytest.mark.parametrize("state", ["pending", "scheduled", "blocked", "parked"])
def test_K3_an_open_job_that_does_not_run_is_changed(
    play: Play, store: Store, clock: Clock, state: str
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new("first", delay=DAY))
        more: dict[str, Any] = {"delay": HOUR} if state == "scheduled" else {}
        (id,) = yield from put(store, new(after=[first] if state == "blocked" else [], **more))
        if state == "parked":
            yield from store.park((yield from claim(store)))
        said = {"priority": 7, "queue": "other", "label": "note"}
        record = yield from store.change(id, said, "ops")
        assert {name: getattr(record, name) for name in said} == said
        same = {"parked": "pending"}.get(state, state)
        assert record.state == same
        later = yield from store.change(id, {"run_at": clock() + HOUR})
        assert later.run_at == clock() + HOUR
        assert later.state == ("blocked" if state == "blocked" else "scheduled")
        now = yield from store.change(id, {"run_at": clock() - HOUR})
        assert now.state == ("blocked" if state == "blocked" else "pending")
        if state == "blocked":
            yield from store.complete(first, "1")
        (held,) = yield from claim(store, 9, queues=["default", "other"])
        assert (held.job_id, held.queue, held.priority, held.label) == (id, "other", 7, "note")
        assert (yield from store.finish([completed(held)])).accepted == [id]
        (line,) = (yield from store.audit(id, None, 10)).records
        assert (line.action, line.done_by) == ("change", "ops")

    play(script)


def test_K3_one_that_runs_or_has_ended_is_not_changed(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, new())
        (held,) = yield from store.claim(1, ["default"], 0, None, 1)
        with pytest.raises(InvalidState, match=f"job {id} is claimed by a worker; only an open"):
            yield from store.change(id, {"priority": 1})
        yield from store.progress((), [(held, held.claimed_at)])
        with pytest.raises(InvalidState, match=f"job {id} is running; only an open job that does"):
            yield from store.change(id, {"priority": 1})
        yield from store.finish([completed(held)])
        with pytest.raises(InvalidState, match=f"job {id} is completed; only an open job"):
            yield from store.change(id, {"priority": 1})

    play(script)


def test_K2_a_completed_chain_runs_again_as_a_new_one(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (before,) = yield from put(store, new("before"))
        yield from store.complete(before, '"out"')
        (id,) = yield from put(
            store,
            new(
                "t", arguments="[1]", key="k", label="l", priority=3, queue="q", after=[before],
                policy=Policy.RUN, expires=HOUR,
            ),
        )  # fmt: skip
        with pytest.raises(InvalidState, match=f"chain {id} is open, not completed: it goes on"):
            yield from store.rerun(id)
        yield from store.complete(id, "2")
        again = yield from store.rerun(id, "ops")
        assert again.id > id
        same = ("t", "[1]", "k", "l", 3, "q", None)
        found = (again.task, again.arguments, again.key, again.label, again.priority, again.queue)
        assert (*found, again.expires_at) == same
        blockers = (yield from store.blockers([again.id]))[again.id]
        assert [blocker.output for blocker in blockers] == ['"out"']
        with pytest.raises(DuplicateKey, match=f"chain {again.id} already has key 'k'"):
            yield from store.rerun(id)
        yield from store.fail(again.id, "no")
        with pytest.raises(InvalidState, match=rf"not completed: retry\({again.id}\) runs it"):
            yield from store.rerun(again.id)

    play(script)


def test_R4_chains_are_pruned_by_another_age_and_state(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        ids = yield from put(store, *[new() for _ in range(4)])
        for id, how in zip(ids, ("completed", "failed", "cancelled"), strict=False):
            yield from end(store, id, how)
        (waits,) = yield from put(store, new(after=[ids[1]], policy=Policy.WAIT))
        clock.advance(3600)
        only_failed = KeepFor(None, 0, None)
        assert (yield from store.prune_by(only_failed, 0, True)).chains == 0  # one waits for it
        pruned = yield from store.prune_by(KeepFor(HOUR, HOUR, HOUR), 0, True)
        assert (pruned.chains, pruned.done) == (2, True)
        assert (yield from states(store, *ids)) == ["completed", "failed", "cancelled", "pending"]
        assert (yield from store.prune_by(KeepFor(2 * HOUR, None, None), 0)).chains == 0
        assert (yield from store.prune_by(KeepFor(None, None, 0), 0)).chains == 1
        assert (yield from store.prune_by(KeepFor(None, None, None), 0)).chains == 0
        assert (yield from states(store, *ids)) == ["completed", "failed", "pending"]
        assert (yield from states(store, waits)) == [State.BLOCKED]

    play(script)


def test_changed_jobs_are_claimed_in_their_new_order(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        ids = yield from put(store, *[new() for _ in range(3)])
        yield from store.change(ids[2], {"priority": 1})
        held = yield from claim(store, 3)
        assert [job.job_id for job in held] == [ids[2], ids[0], ids[1]]
        yield from store.finish([failed(job) for job in held])

    play(script)
