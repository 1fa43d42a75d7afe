"""Statements that are sent with the next one: what their operation is told, what an error does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit import new
from towline import Towline
from towline.errors import TowlineError
from towline.operation import Op, Steps
from towline.sql import Row


def pause(app: Towline, name: str) -> Steps[list[Row]]:
    """Pause a queue by a deferred statement; what is answered to it."""
    return (yield app.runner.store.sql.pause_queue(name=name, now=1, by=None).defer())


def test_the_answer_comes_with_that_of_the_next_statement(app: Towline) -> None:
    sql = app.runner.store.sql

    def steps() -> Steps[tuple[list[Row], list[Row]]]:
        due = yield sql.next_due().defer()
        bounds = yield sql.id_bounds().defer()
        before = [*due, *bounds]
        ((registered,),) = yield sql.is_registered(id=1, name="nobody")
        assert registered == 0
        return before, [*due, *bounds]

    before, after = app.runner.run(Op("look", steps))
    assert (before, after) == ([], [(None,), (1, 0)])


def test_what_nothing_follows_is_sent_with_the_commit(app: Towline) -> None:
    app.runner.run(app.runner.store.enqueue([new(queue="a")]))
    app.runner.run(Op("pause", pause, app, "a"))
    assert app.paused() == ["a"]


def test_an_error_of_it_is_that_of_the_operation(app: Towline) -> None:
    """It is raised where the next statement stands, or by the commit; nothing is kept."""
    app.runner.run(app.runner.store.enqueue([new(queue="a")]))

    def broken(follow: bool) -> Steps[None]:
        yield from pause(app, "a")
        wrong = {"id": 1, "task": None, "created_at": 1, "trace": None}
        yield app.runner.store.sql.insert_chains.many(tuple(wrong), [tuple(wrong.values())]).defer()
        if follow:
            yield app.runner.store.sql.next_due()

    for follow in (True, False):
        with pytest.raises(TowlineError):
            app.runner.run(Op("broken", broken, follow))
        assert app.paused() == []
    app.runner.run(app.runner.store.enqueue([new()]))  # its connection works on


def test_behind_a_pooler_each_is_sent_by_itself(make_app: Callable[..., Towline]) -> None:
    app = make_app(pooler=True)
    sql = app.runner.store.sql

    def steps() -> Steps[list[Row]]:
        due = yield sql.next_due().defer()
        return list(due)

    assert app.runner.run(Op("look", steps)) == [(None,)]
