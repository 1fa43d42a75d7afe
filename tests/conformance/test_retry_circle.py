"""Retrying what would then wait for itself: refused, or left as it ended."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Play
from tests.kit import claim, continued, new, put, states
from towline.errors import InvalidState
from towline.model import Policy
from towline.operation import Steps
from towline.store import Store


@pytest.mark.parametrize("policy", [Policy.WAIT, Policy.RUN])
def test_B5_a_job_whose_blocker_now_waits_for_it_cannot_be_retried(
    play: Play, store: Store, policy: Policy
) -> None:
    """Under policy "run" the other may run, but would be blocked again by the retry."""

    def begin() -> Steps[tuple[int, int]]:
        (first,) = yield from put(store, new())
        (held,) = yield from claim(store)
        (dependent,) = yield from put(store, new(after=[first]))
        yield from store.cancel(dependent)
        yield from store.finish([continued(held, new(after=[dependent], policy=policy))])
        _, last = yield from store.chain(first)
        return dependent, last.id

    dependent, last = play(begin)
    before = play(lambda: states(store, dependent, last))
    with pytest.raises(InvalidState, match="waits for its own chain"):
        play(lambda: iter(store.retry(dependent)))
    assert before == ["cancelled", "blocked" if policy is Policy.WAIT else "pending"]
    assert play(lambda: states(store, dependent, last)) == before

    def again() -> Steps[None]:
        yield from store.complete(last, "1")
        yield from store.retry(dependent)
        assert (yield from states(store, dependent)) == ["pending"]

    play(again)


def test_B6_a_dependent_that_would_wait_for_itself_is_not_revived_with_the_others(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        cause, other = yield from put(store, new(), new(priority=1))
        circle, innocent = yield from put(store, new(after=[cause, other]), new(after=[cause]))
        yield from store.fail(cause, "boom")
        (held,) = yield from claim(store)
        assert held.job_id == other
        yield from store.finish([continued(held, new(after=[circle], policy=Policy.WAIT))])
        _, last = yield from store.chain(other)
        yield from store.retry(cause)
        found = yield from states(store, cause, circle, innocent, last.id)
        assert found == ["pending", "failed", "blocked", "blocked"]

    play(script)
