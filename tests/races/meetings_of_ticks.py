"""More meetings: a tick that is fired, and what others do to its schedule or to the job before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.kit import MINUTE, completed, new
from tests.races.interleaver import Meeting, Met
from tests.races.meetings import Given, finish, is_not, running
from towline import Cron
from towline.operation import Op, Row, Steps
from towline.schedule import NewSchedule
from towline.store import Store
from towline.store.listing import JobFilter
from towline.store.schedule import ADVANCE


def due(store: Store, overlap: str, before: int | None = None) -> Steps[Given]:
    """A schedule one of whose ticks has come; `before`: the chain of the tick before."""
    yield from store.set_schedule(NewSchedule("s", new(), Cron(every=60).timing, 0, 1, overlap))
    tick = store.clock() // MINUTE * MINUTE
    row: Row = (tick, None, before, 0, 0, 0, "s")
    yield store.sql.advance_schedules.many(ADVANCE, [row])
    return {"tick": tick}


def ticks(met: Met[Given]) -> list[int | None]:
    def steps() -> Steps[list[int | None]]:
        page = yield from met.store.jobs(JobFilter(schedule="s"), 100)
        return [job.tick for job in page.records]

    return met.stage.look(Op("ticks", steps, reads=True))


def fire_and_fire() -> Meeting[Given]:
    """One of them fires (N1)."""

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.fire(["a"]), store.fire(["a"])

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from is_not(sum(fired.jobs for fired in met.answers), 1, what="jobs")
        yield from is_not(ticks(met), [met.given["tick"]], what="ticks")

    return Meeting(lambda store: due(store, "skip"), operations, expect)


def fire_and_control(act: Callable[[Store], Op[Any]]) -> Meeting[Given]:
    """The tick runs once or not at all (N8)."""

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.fire(["a"]), act(store)

    def expect(met: Met[Given]) -> Iterator[str]:
        fired = [tick for tick in ticks(met) if tick is not None]
        yield from is_not(fired, [met.given["tick"]][: met.answers[0].jobs], what="ticks")

    return Meeting(lambda store: due(store, "allow"), operations, expect)


def fire_and_end(overlap: str, outside: bool) -> Meeting[Given]:
    """The job before ends while the tick is fired: nobody waits for ever, and none runs in vain
    (N6). What cannot be had at once is left for another time."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new())
        return {"held": held, **(yield from due(store, overlap, held.chain_id))}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        end = store.cancel(held.job_id) if outside else finish(store, completed(held))
        return store.fire(["a"]), end

    def expect(met: Met[Given]) -> Iterator[str]:
        fired = met.answers[0]
        if fired.postponed:
            yield from is_not(ticks(met), [], what="ticks of what was postponed")
            return
        yield from is_not(fired.jobs, 1, what="jobs")
        (job,) = met.stage.look(met.store.jobs(JobFilter(schedule="s"), 9)).records
        ended = met.states(met.given["held"].job_id)[0] != "running"
        yield from is_not(str(job.state), "pending" if ended else "blocked", what="the new job")

    return Meeting(prepare, operations, expect)
