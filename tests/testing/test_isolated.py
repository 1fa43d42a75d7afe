"""The application's own app on a throw-away file, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from towline import Towline
from towline.testing import Clock, drain, isolated


def test_the_app_itself_works_elsewhere_and_comes_back(
    make_app: Callable[..., Towline], clock: Callable[[], int]
) -> None:
    shop = make_app(prefix="shop_", clock=clock)

    @shop.task
    def add(a: int, b: int) -> int:
        return a + b

    real = add.enqueue(1, 2)
    url, now = shop.url, shop.runner.store.clock()
    with isolated(shop) as app:
        assert app is shop
        assert app.url != url
        assert "shop_job" in app.ddl()
        assert list(app.jobs()) == []
        job = add.enqueue(3, 4)
        assert drain(app) == 1
        assert job.result(timeout=0) == 7
        place = Path(app.url.removeprefix("sqlite:///"))
        assert place.exists()
    assert not place.parent.exists()
    assert (shop.url, shop.runner.store.clock()) == (url, now)
    assert [job.id for job in shop.jobs()] == [real.id]


def test_it_comes_back_after_a_failure(make_app: Callable[..., Towline]) -> None:
    shop = make_app()
    url = shop.url
    with pytest.raises(ZeroDivisionError), isolated(shop):
        raise ZeroDivisionError
    assert shop.url == url


def test_two_tests_see_nothing_of_each_other() -> None:
    shop = Towline("sqlite:////nowhere/at/all.db")

    @shop.task
    def quiet() -> None: ...

    for _ in range(2):
        with isolated(shop) as app:
            quiet.enqueue()
            assert len(app.jobs()) == 1


def test_without_an_app_there_is_a_new_one() -> None:
    clock = Clock()
    with isolated(clock=clock) as app:
        assert app.registry == {}
        assert app.runner.store.clock is clock


def test_the_app_is_put_back_whole(make_app: Callable[..., Towline]) -> None:
    shop = make_app(durable=True)
    before = shop.settings
    with isolated(shop, clock=Clock()):
        assert shop.settings.engine.durable is False
    assert shop.settings is before
    assert not isinstance(shop.runner.store.clock, Clock)
