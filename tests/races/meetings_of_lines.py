"""Meetings in the line of a key: who goes behind whom, and who leaves it (Y2–Y4).

That at most one of a line is open without another open one before it, and that nobody stands behind
the same chain as another, the auditor says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.kit import claim, completed, failed, new, put
from tests.races.interleaver import Meeting, Met
from tests.races.meetings import Given, finish, is_not, running
from towline.errors import DuplicateKey
from towline.model import Policy
from towline.operation import Op, Steps
from towline.records import NewJob
from towline.store import Store


def asked(how: str, arguments: str = "{}") -> NewJob:
    return new("t", key="k", on_conflict=how, policy=Policy.RUN, arguments=arguments)


def one_runs(store: Store) -> Steps[Given]:
    (held,) = yield from running(store, asked("after"))
    return {"held": held, "job": held.job_id}


def two_go_behind(how: str, *, ends: bool = False) -> Meeting[Given]:
    """Two callers, and perhaps the one that runs ends meanwhile."""

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        ops: list[Op[Any]] = [store.enqueue([asked(how, f"[{n}]")]) for n in (1, 2)]
        return [*ops, finish(store, completed(given["held"]))] if ends else ops

    def expect(met: Met[Given]) -> Iterator[str]:
        one, two = (answer[0] for answer in met.answers[:2])
        created = one.created + two.created
        if how == "after":
            yield from is_not(created, 2, what="created")
            yield from is_not("pending" in met.states(one.record.id, two.record.id), ends,
                              what="one may run")  # fmt: skip
        else:
            yield from is_not(created, 1, what="created")
            yield from is_not(one.record.id, two.record.id, what="the other's chain")

    return Meeting(one_runs, operations, expect)


def go_behind_and_cancel(which: str) -> Meeting[Given]:
    """Somebody goes behind the line while one of it leaves."""

    def prepare(store: Store) -> Steps[Given]:
        given = yield from one_runs(store)
        middle, last = yield from put(store, asked("after"), asked("after"))
        return {**given, "middle": middle, "last": last}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.enqueue([asked("after")]), store.cancel(given[which])

    def expect(met: Met[Given]) -> Iterator[str]:
        ((stored, _),) = met.answers[0]
        left = [met.given[name] for name in ("middle", "last") if name != which]
        yield from is_not(met.states(stored.id, *left), ["blocked", "blocked"], what="states")

    return Meeting(prepare, operations, expect)


def cancel_two() -> Meeting[Given]:
    """Neighbours leave the line at the same moment: what is behind them waits for the first."""

    def prepare(store: Store) -> Steps[Given]:
        given = yield from one_runs(store)
        jobs = yield from put(store, *[asked("after") for _ in range(3)])
        return {**given, "jobs": jobs}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return [store.cancel(job) for job in given["jobs"][:2]]

    def expect(met: Met[Given]) -> Iterator[str]:
        wanted = ["cancelled", "cancelled", "blocked"]
        yield from is_not(met.states(*met.given["jobs"]), wanted, what="states")

    return Meeting(prepare, operations, expect)


def retry_and_claim() -> Meeting[Given]:
    """One that failed is retried when the next one is about to begin: never both."""

    def prepare(store: Store) -> Steps[Given]:
        given = yield from one_runs(store)
        (second,) = yield from put(store, asked("after"))
        yield from store.finish([failed(given["held"])], "w1", 1)
        return {**given, "second": second}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.retry(given["job"]), Op("claim", claim, store)

    def expect(met: Met[Given]) -> Iterator[str]:
        retried, claimed = met.answers
        if isinstance(retried, DuplicateKey):
            wanted = ["failed", "running"]
        else:
            first = claimed and claimed[0].job_id == met.given["job"]
            wanted = ["running" if first else "pending", "blocked"]
        found = met.states(met.given["job"], met.given["second"])
        yield from is_not(found, wanted, what="states")

    return Meeting(prepare, operations, expect)


def latest_and_claim() -> Meeting[Given]:
    """New arguments come at the moment of the start: they run, now or next."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, asked("latest", "[1]"))
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.enqueue([asked("latest", "[2]")]), Op("claim", claim, store)

    def expect(met: Met[Given]) -> Iterator[str]:
        ((stored, created),), claimed = met.answers
        ran = [held.arguments for held in claimed]
        if created:
            yield from is_not(ran, ["[1]"], what="arguments")
            yield from is_not(met.states(stored.id), ["blocked"], what="state")
        elif claimed:
            yield from is_not(ran, ["[2]"], what="arguments")

    return Meeting(prepare, operations, expect)
