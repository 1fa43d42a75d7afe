"""Claims, leases and the fence, on every kind of connection."""

from __future__ import annotations

from tests.conformance.conftest import Play
from tests.kit import Clock, claim, completed, new, register
from windlass.model import Finished, JobRecord, State
from windlass.operation import Steps
from windlass.store import Store


def test_L3_a_lost_lease_changes_nothing(play: Play, store: Store, clock: Clock) -> None:
    def lose() -> Steps[tuple[Finished, JobRecord]]:
        worker = yield from register(store)
        ((record, _),) = yield from store.enqueue([new()])
        (stale,) = yield from claim(store, worker=worker)
        clock.advance(31)
        taken = yield from store.sweep()
        assert taken == 1
        clock.advance(600)
        yield from store.promote()
        other = yield from register(store, "w2")
        (fresh,) = yield from claim(store, worker=other)
        assert (stale.attempt, fresh.attempt) == (1, 2)
        finished = yield from store.finish([completed(stale)])
        return finished, (yield from store.one(record.id))

    finished, job = play(lose)
    assert finished.accepted == []
    assert finished.refused == [job.id]
    assert job.state is State.RUNNING
