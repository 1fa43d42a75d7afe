"""What the history says of two transactions at once: a turn's own time is that of its begin."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit import completed, new, register
from tests.postgres.conftest import on_newest
from towline import Towline
from towline.operation import Op, Statement, Steps
from towline.store.turn import Turn


@on_newest
def test_F1_what_a_turn_claims_begins_after_what_it_waited_for_has_ended(
    make_app: Callable[..., Towline], url: str
) -> None:
    """Another turn has ended it since this one began, and committed before this one's claim."""
    app = make_app(url)
    run, store = app.runner.run, app.runner.store
    ((first, _),) = run(store.enqueue([new()]))
    ((waits, _),) = run(store.enqueue([new(after=[first.id])]))
    worker = run(Op("register", lambda: register(store, "w")))
    (held,) = run(store.turn(worker, "w", ["default"], 1)).claimed

    def turn() -> Steps[Turn]:
        running = iter(store.turn(worker, "w", ["default"], 8))
        try:
            step = next(running)
            while True:
                if isinstance(step, Statement) and step.query.name == "claim_pending":
                    run(store.finish([completed(held)], "w"))
                step = running.send((yield step))
        except StopIteration as stop:
            turn: Turn = stop.value
            return turn

    (claimed,) = run(Op("turn", turn)).claimed
    assert claimed.job_id == waits.id
    chain, _ = run(store.chain(first.id))
    assert chain.ended_at is not None
    assert claimed.claimed_at > chain.ended_at
