"""chain --tree: what a chain waits for, and what needs it."""

from __future__ import annotations

import pytest

from tests.cli.shop import APP, Shop
from tests.kit import new
from towline.cli.tree import Growing


def diamond(shop: Shop) -> tuple[int, int, int, int]:
    """One that two wait for, and a last one that waits for both."""
    top = shop.put("add", a=1, b=1)
    left = shop.store(new("left", after=[top]))
    right = shop.store(new("right", after=[top]))
    return top, left, right, shop.store(new("bottom", after=[left, right]))


@pytest.mark.each_engine
def test_a_diamond(any_shop: Shop) -> None:
    """What is met twice is shown once."""
    top, left, right, bottom = diamond(any_shop)
    assert any_shop.text("chain", APP, str(top), "--tree").splitlines() == [
        f"chain {top}  add  open",
        f"├── needed by chain {left}  left  open",
        f"│   └── needed by chain {bottom}  bottom  open",
        f"└── needed by chain {right}  right  open",
        f"    └── needed by chain {bottom}  bottom  open  (shown above)",
    ]
    tree = any_shop.data("chain", APP, str(bottom), "--tree")
    (job,) = tree["jobs"]
    first, second = job["waits_for"]
    assert (first["chain"], second["chain"], tree["needed_by"]) == (left, right, [])
    assert [b["seen"] for f in (first, second) for b in f["jobs"][0]["waits_for"]] == [False, True]


@pytest.mark.each_engine
def test_a_chain_that_went_on(any_shop: Shop) -> None:
    """Its jobs in order, each with what it waits for."""
    chain = any_shop.store(new("fetch", arguments='{"n": 1}', queue="mail"))
    after = any_shop.store(new("join", after=[chain]))
    any_shop.run("worker", APP, "--drain")
    first, second = [job.id for job in any_shop.app.jobs(chain=chain, newest=False)]
    assert any_shop.text("chain", APP, str(chain), "--tree").splitlines() == [
        f"chain {chain}  fetch  completed",
        f"├── job {first}  fetch  completed",
        f"├── job {second}  add  completed",
        f"└── needed by chain {after}  join  completed",
    ]
    text = any_shop.text("chain", APP, str(after), "--tree")
    assert f"└── waits for chain {chain}  fetch  completed" in text


@pytest.mark.each_engine
def test_it_is_bounded(any_shop: Shop) -> None:
    """A hundred chains and jobs, and how many more there are."""
    top = any_shop.put("add", a=1, b=1)
    store = any_shop.app.runner.store
    any_shop.app.runner.run(store.enqueue([new("join", after=[top])] * 150))
    lines = any_shop.text("chain", APP, str(top), "--tree").splitlines()
    assert lines[-1] == f"└── and {150 - (len(lines) - 2)} more that need it"
    assert len(lines) <= 101
    few = Growing(any_shop.app, most=4).around(any_shop.app.chain(top))
    assert (len(few["needed_by"]), few["more_needed_by"]) == (1, 149)


def test_names_are_text(shop: Shop) -> None:
    """X11"""
    job = shop.store(new("[bold]boom\x1b[2J[/bold]"))
    text = shop.text("chain", "--url", shop.url, str(job), "--tree")
    assert text == f"chain {job}  [bold]boom\\x1b[2J[/bold]  open\n"
