"""What must not cost more where there is more: B7, C3, S4. Counted by the database, not timed.

Where rows come and go, each transaction is committed: PostgreSQL keeps what died in an open one.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.database import Database
from tests.kit import HOUR, Clock, beat, claim, completed, continued, end, new, register, states
from tests.speed import by_speed
from towline import Towline
from towline.operation import Op, Steps
from towline.postgres.transaction import SETTINGS
from towline.records import Claimed


def by_index(database: Database, connection: Any) -> None:
    """As our own transactions ask for it: the planner would read tables this small as a whole."""
    if database.engine == "postgres":
        connection.execute(SETTINGS.replace("LOCAL ", ""))
        connection.commit()


pytestmark = pytest.mark.heavy

# ---- B7: many


@pytest.mark.parametrize("how", ["completed", "failed"])
def test_B7_a_thousand_jobs_behind_one_chain_cost_ten_times_a_hundred(
    app: Towline, database: Database, how: str
) -> None:
    """Freeing them, or failing and reviving them."""
    store = app.runner.store

    def cost(connection: Any, number: int) -> list[int]:
        (chain,) = app.runner.run(store.enqueue([new()]), on=connection)
        root = chain.record.id
        jobs = [new(after=[root]) for _ in range(number)]
        steps = [
            database.cost(connection, lambda: app.runner.run(store.enqueue(jobs), on=connection)),
            database.cost(connection, lambda: app.runner.run(end(store, root, how), on=connection)),
        ]
        ids = [record.job_id for record in app.runner.run(store.dependents(root), on=connection)]
        assert len(ids) == number
        if how == "failed":
            assert _states(app, connection, ids) == {"failed"}
            steps.append(
                database.cost(connection, lambda: app.runner.run(store.retry(root), on=connection))
            )
            assert _states(app, connection, ids) == {"blocked"}
        else:
            assert _states(app, connection, ids) == {"pending"}
        return steps

    with closing(database.connect()) as connection:
        few, many = cost(connection, 100), cost(connection, 1000)
        connection.rollback()
    for small, large in zip(few, many, strict=True):
        assert large < small * 10 * database.slack


def test_B7_a_thousand_blockers_of_one_job_cost_ten_times_a_hundred(
    app: Towline, database: Database
) -> None:
    store = app.runner.store

    def cost(connection: Any, number: int) -> list[int]:
        answers = app.runner.run(store.enqueue([new("b")] * number), on=connection)
        blockers = [answer.record.id for answer in answers]
        job = [new("waiting", after=blockers)]
        held = app.runner.run(store.claim(1, ["default"], number), on=connection)
        endings = [completed(one) for one in held]
        steps = [
            database.cost(connection, lambda: app.runner.run(store.enqueue(job), on=connection))
        ]
        (waiting,) = {
            record.job_id for record in app.runner.run(store.dependents(blockers[0]), on=connection)
        }
        assert _states(app, connection, [waiting]) == {"blocked"}
        # All in one turn, but the last.
        app.runner.run(store.finish(endings[:1]), on=connection)
        steps.append(
            database.cost(
                connection, lambda: app.runner.run(store.finish(endings[1:-1]), on=connection)
            )
        )
        assert _states(app, connection, [waiting]) == {"blocked"}
        app.runner.run(store.finish(endings[-1:]), on=connection)
        assert _states(app, connection, [waiting]) == {"pending"}
        steps.append(
            database.cost(
                connection,
                lambda: app.runner.run(Op("beat", lambda: beat(store, 1)), on=connection),
            )
        )
        return steps

    with closing(database.connect()) as connection:
        few, many = cost(connection, 100), cost(connection, 1000)
        connection.rollback()
    for small, large in zip(few, many, strict=True):
        assert large < small * 10 * database.slack


def test_B7_storing_a_job_behind_a_failed_chain_does_not_look_at_those_before_it(
    app: Towline, database: Database
) -> None:
    store = app.runner.store
    with closing(database.connect()) as connection:
        by_index(database, connection)
        app.runner.run(store.enqueue([new()]), on=connection)
        app.runner.run(store.fail(1, "broken"), on=connection)

        def one_more() -> None:
            app.runner.run(store.enqueue([new(after=[1])]), on=connection)

        few = database.cost(connection, one_more)
        app.runner.run(store.enqueue([new(after=[1])] * 500), on=connection)
        many = database.cost(connection, one_more)
        connection.rollback()
    assert many < few * 2


def _states(app: Towline, connection: Any, ids: list[int]) -> set[str]:
    return set(app.runner.run(Op("states", lambda: states(app.runner.store, *ids)), on=connection))


# ---- C3: a long chain


def test_C3_the_last_of_many_steps_costs_what_the_first_did(
    app: Towline, database: Database
) -> None:
    """Ten thousand on SQLite; where each statement travels, as many as there is time for."""
    store = app.runner.store
    number = 10_000 if database.engine == "sqlite" else by_speed(200, 600)

    def steps(number: int) -> Steps[None]:
        for _ in range(number):
            (held,) = yield from claim(store)
            yield from store.finish([continued(held, new("a"))])
        # Whoever looks at the chain pays no more either.
        yield from store.chain(1)

    def run(number: int) -> None:
        app.runner.run(Op("steps", lambda: steps(number)), on=connection)

    def after(more: int) -> int:
        """What one step costs, the last of so many more."""
        for _ in range(more // 20 - 1):
            run(20)
            connection.commit()
        run(19)
        connection.commit()
        database.tidy()
        return database.cost(connection, lambda: run(1))

    with closing(database.connect()) as connection:
        by_index(database, connection)
        app.runner.run(store.enqueue([new("a"), new("behind", after=[1])]), on=connection)
        early = after(number // 10)
        late = after(number - number // 10)
        _, last = app.runner.run(store.chain(1), on=connection)
        connection.commit()
    assert last.position == number
    assert early > 10
    assert late <= early * database.slack


# ---- S4: later ones are in nobody's way


def test_S4_future_jobs_of_higher_priority_do_not_slow_the_claim_of_ready_ones(
    app: Towline, database: Database, clock: Clock
) -> None:
    """Also after the application has run ANALYZE."""
    store = app.runner.store

    def cost() -> int:
        app.runner.run(store.enqueue([new("ready")] * 3), on=connection)

        def turn() -> None:
            two = app.runner.run(store.turn(worker, "w", ["default", "other"], 2), on=connection)
            assert [held.task for held in two.claimed] == ["ready"] * 2
            held.extend(two.claimed)

        connection.commit()
        steps = database.cost(connection, turn)
        held.extend(app.runner.run(store.turn(worker, "w", ["default"], 1), on=connection).claimed)
        app.runner.run(store.finish([completed(one) for one in held]), on=connection)
        held.clear()
        connection.commit()
        return steps

    held: list[Claimed] = []
    worker = app.runner.run(Op("register", lambda: register(store, "w")))
    with closing(database.connect()) as connection:
        app.runner.run(store.enqueue([new("later", delay=HOUR, priority=9)]), on=connection)
        empty = cost()
        later = [new("later", delay=HOUR + n, priority=9 + n % 3) for n in range(5000)]
        app.runner.run(store.enqueue(later), on=connection)
        full = cost()
        connection.execute("ANALYZE")
        analysed = cost()
        ((number,),) = connection.execute("SELECT count(*) FROM towline_live").fetchall()
    assert number == 5001
    assert empty > 10
    assert full <= empty * database.slack
    assert analysed <= empty * database.slack
