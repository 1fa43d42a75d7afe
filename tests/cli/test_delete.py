"""delete: what goes, what stays, and that it asks."""

from __future__ import annotations

import json

from tests.cli.shop import APP, Shop
from tests.cli.terminal import Terminal
from tests.kit import new


def ended(shop: Shop, *tasks: str) -> list[int]:
    jobs = [shop.store(new(task, arguments='{"n": 1}')) for task in tasks]
    for job in jobs:
        shop.app.fail(job, "broken")
    return jobs


def left(shop: Shop) -> list[int]:
    return [chain.id for chain in shop.app.chains(newest=False)]


def test_delete_by_id(any_shop: Shop) -> None:
    """R3: those that can go, go; of the others it says why."""
    one, two, three = ended(any_shop, "a", "b", "c")
    assert any_shop.text("delete", APP, str(two), "--yes") == f"1 chain deleted: {two}\n"
    done = any_shop.run("delete", APP, str(one), str(two), "--yes", "--json", code=1)
    found = json.loads(done.stdout)
    assert (found["chains"], [error["id"] for error in found["errors"]]) == ([one], [two])
    assert f"there is no chain {two}" in done.stderr
    assert left(any_shop) == [three]


def test_delete_by_filter(any_shop: Shop) -> None:
    """K4: the ended ones, unless a state is named; can be previewed."""
    ended(any_shop, "a", "a", "b")
    waiting = any_shop.store(new("a"))
    dropped = any_shop.store(new("a"))
    any_shop.app.cancel(dropped)
    task = ("delete", APP, "--task", "a")
    assert any_shop.text(*task, "--preview") == "3 chains would be deleted\n"
    states = ("--state", "failed", "--state", "open")
    assert any_shop.data(*task, *states, "--preview") == {"number": 3, "preview": True}
    assert len(left(any_shop)) == 5
    assert any_shop.text(*task, "--state", "cancelled", "--yes") == "1 chain deleted\n"
    assert any_shop.data(*task, "--yes") == {"number": 2, "preview": False}
    assert any_shop.data(*task, "--yes") == {"number": 0, "preview": False}
    assert any_shop.app.job(waiting).state == "pending"
    assert any_shop.text("delete", APP, "--all", "--yes") == "1 chain deleted\n"
    assert any_shop.text(*task, "--state", "open", "--yes") == "1 chain deleted\n"
    assert left(any_shop) == []


def test_what_others_wait_for_stays(any_shop: Shop) -> None:
    """R3: one that must stay does not keep the others; with what waits it goes."""
    blocker = any_shop.store(new("a"))
    waiting = any_shop.store(new("b", after=[blocker]))
    other = any_shop.store(new("a"))
    assert "wait for it" in any_shop.refused("delete", APP, str(blocker), "--yes", code=1)
    found = any_shop.data("delete", APP, "--task", "a", "--state", "open", "--yes")
    assert (found["number"], left(any_shop)) == (1, [blocker, waiting])
    assert other not in left(any_shop)
    found = any_shop.data("delete", APP, str(waiting), "--cascade", "--yes")
    assert found["chains"] == [blocker, waiting]


def test_a_running_one_needs_force(any_shop: Shop) -> None:
    job = any_shop.put("hold", name="one")
    any_shop.start("worker", APP)
    any_shop.began("one")
    assert "is running" in any_shop.refused("delete", APP, str(job), "--yes", code=1)
    state = ("delete", APP, "--state", "open", "--yes")
    assert any_shop.data(*state)["number"] == 0
    assert any_shop.data(*state, "--force")["number"] == 1
    assert left(any_shop) == []


def test_it_asks(shop: Shop) -> None:
    """At a terminal; where nobody can be asked it is refused."""
    one, two = ended(shop, "a", "b")
    assert "--yes" in shop.refused("delete", APP, str(one), code=2)
    assert "--yes" in shop.refused("delete", APP, "--task", "b", code=2)
    assert shop.text("delete", APP, "--task", "none") == "0 chains deleted\n"
    with Terminal(shop, "delete", APP, "--all") as terminal:
        terminal.sees("Delete 2 chains? [y/N]:")
        terminal.types("n\n")
        assert terminal.ends() == 1
        assert "nothing was deleted" in terminal.shown
    assert left(shop) == [one, two]
    with Terminal(shop, "delete", APP, str(two)) as terminal:
        terminal.sees("Delete 1 chain?")
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert left(shop) == [one]
