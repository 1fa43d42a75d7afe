"""Every order of statements of two operations that meet, on PostgreSQL (B2–B6, D1, D2, L1, L3, R3).

SQLite has one writer at a time: there is nothing to interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.database import opened
from tests.kit import Clock
from tests.races import meetings as m
from tests.races import meetings_of_control as c
from tests.races import meetings_of_fan_out as f
from tests.races import meetings_of_lanes as g
from tests.races import meetings_of_lines as n
from tests.races import meetings_of_ticks as t
from tests.races.interleaver import Interleaver, Meeting, Report
from tests.races.meetings_of_levels import with_an_old_snapshot
from tests.races.stepped import Style
from tests.speed import by_speed, drawn
from towline import Towline
from towline.model import Policy
from towline.operation import Query
from towline.postgres.store import PostgresStore
from towline.sql import Queries
from towline.store import Store

OURS, CALLER = Style.OURS, Style.CALLER
POLICIES = (Policy.FAIL, Policy.WAIT, Policy.RUN)
Case = tuple[Meeting[Any], tuple[Style, ...]]


def cases() -> Iterator[tuple[str, Meeting[Any], tuple[Style, ...]]]:
    """Meetings by name; the styles say in whose transactions the operations run."""
    yield "finish, sweep", m.finish_and_sweep(), (OURS, OURS)
    yield "sweep, sweep", m.sweep_and_sweep(), (OURS, OURS)
    yield "sweep, renew", m.sweep_and_renew(), (OURS, OURS)
    yield "sweep, claim", m.sweep_and_claim(), (OURS, OURS)
    yield "claim, claim", m.claim_and_claim(), (OURS, OURS)
    yield "promote, run now", m.promote_and_control("run"), (OURS, CALLER)
    yield "promote, cancel", m.promote_and_control("cancel"), (OURS, CALLER)
    for style in (OURS, CALLER):
        yield f"finish, cancel {style.value}", m.finish_and_control("cancelled"), (OURS, style)
        yield f"finish, complete {style.value}", m.finish_and_control("completed"), (OURS, style)
        yield f"claim, cancel {style.value}", m.claim_and_cancel(), (OURS, style)
        yield f"claim, replace {style.value}", m.claim_and_replace(0), (OURS, style)
        yield f"claim, replace later {style.value}", m.claim_and_replace(9), (OURS, style)
    for first, second, policy in (
        ("completed", "completed", Policy.FAIL),
        *product(["completed"], ["failed"], POLICIES),
        ("failed", "cancelled", Policy.FAIL),
    ):
        name = f"finish {first}, finish {second}, {policy.name.lower()}"
        yield name, m.finish_and_finish(first, second, policy), (OURS, OURS)
    for how in ("completed", "failed"):
        yield f"finish {how}, cancel dependent", m.end_and_cancel_dependent(how), (OURS, CALLER)
        for policy, style in (*product(POLICIES, [OURS]), (Policy.FAIL, CALLER)):
            name = f"enqueue {style.value} behind, finish {how}, {policy.name.lower()}"
            yield name, m.enqueue_and_end(how, policy), (style, OURS)
    for how, policy in (
        ("completed", Policy.FAIL),
        ("failed", Policy.FAIL),
        ("failed", Policy.RUN),
    ):
        name = f"enqueue caller behind, {how} caller, {policy.name.lower()}"
        yield name, m.enqueue_and_end(how, policy, outside=True), (CALLER, CALLER)
    for style in (OURS, CALLER):
        name = f"enqueue {style.value} behind"
        yield f"{name}, continue", m.enqueue_and_continue(), (style, OURS)
        yield f"{name}, continue outside", m.enqueue_and_continue(outside=True), (style, style)
    yield "enqueue caller behind, cascade", m.enqueue_and_cascade(), (CALLER, OURS)
    for third in (False, True):
        name = f"circle {'through a third' if third else 'of two'}"
        yield f"{name}, finish", m.circle(outside=False, through_third=third), (OURS, OURS)
        yield f"{name}, complete", m.circle(outside=True, through_third=third), (OURS, CALLER)
    yield "fan-out, sweep", f.fan_out_and_sweep(), (OURS, OURS)
    for style in (OURS, CALLER):
        word = style.value
        yield f"fan-out, cancel {word}", f.fan_out_and_control("cancel"), (OURS, style)
        yield f"fan-out, complete {word}", f.fan_out_and_control("complete"), (OURS, style)
        yield f"enqueue {word} behind, fan-out", f.enqueue_and_fan_out(), (style, OURS)
        yield f"fan-out, fail {word}", f.fan_out_and_end("failed", Policy.FAIL), (OURS, style)
    yield "fan-out, finish", f.fan_out_and_end("completed", Policy.FAIL), (OURS, OURS)
    yield "fan-out, fail, run", f.fan_out_and_end("failed", Policy.RUN), (OURS, OURS)
    yield "dedup, dedup, finish, open", c.dedup_and_dedup("open"), (OURS, OURS, OURS)
    yield "dedup, dedup, finish, any", c.dedup_and_dedup("any"), (OURS, CALLER, OURS)
    for scope, style in product(("open", "any"), (OURS, CALLER)):
        name = f"{scope} {style.value}"
        yield f"dedup, dedup, {name}", c.dedup_twice(scope), (style, style)
        yield f"prune, key {name}", c.prune_and_key(scope), (OURS, style)
    yield "fire, fire", t.fire_and_fire(), (OURS, OURS)
    for name, act in (
        ("pause", lambda store: store.pause_schedule("s")),
        ("resume", lambda store: store.resume_schedule("s")),
        ("run", lambda store: store.run_schedule("s")),
        ("delete", lambda store: store.delete_schedule("s")),
    ):
        yield f"fire, {name} caller", t.fire_and_control(act), (OURS, CALLER)
    for overlap in ("queue", "replace"):
        yield f"fire {overlap}, finish", t.fire_and_end(overlap, False), (OURS, OURS)
        yield f"fire {overlap}, cancel caller", t.fire_and_end(overlap, True), (OURS, CALLER)
    yield "keys in two orders", c.keys_in_two_orders(), (OURS, CALLER)
    for style in (OURS, CALLER):
        word = style.value
        yield f"prune, enqueue {word} behind", c.prune_and_enqueue_behind(), (OURS, style)
        yield f"prune, retry blocker {word}", c.prune_and_retry("blocker"), (OURS, style)
        yield f"prune, retry dependent {word}", c.prune_and_retry("job"), (OURS, style)
        yield f"delete, enqueue {word} behind", c.delete_and_enqueue_behind(), (OURS, style)
        yield f"delete {word}, continue", c.delete_and_finish(goes_on=True), (style, OURS)
        yield f"delete {word}, finish", c.delete_and_finish(goes_on=False), (style, OURS)
        yield f"delete {word}, key", c.delete_and_key(), (style, OURS)
        yield f"retry, cancel {word}", c.retry_and_cancel(), (OURS, style)
        yield f"retry, cancel dependent {word}", c.retry_and_cancel_dependent(), (OURS, style)
        yield f"retry, retry {word}", c.retry_and_retry(), (OURS, style)
        yield f"retry two blockers {word}", c.retry_two_blockers(), (OURS, style)
        yield f"retry, enqueue {word} its key", c.retry_key_and_enqueue(), (OURS, style)
        for policy in POLICIES:
            name = f"retry, enqueue {word} behind, {policy.name.lower()}"
            yield name, c.retry_and_enqueue_behind(policy), (OURS, style)


def lines() -> Iterator[tuple[str, Meeting[Any], tuple[Style, ...]]]:
    """Y2–Y4."""
    for style in (OURS, CALLER):
        word = style.value
        yield f"after, after {word}", n.two_go_behind("after"), (style, style)
        yield f"latest, latest {word}", n.two_go_behind("latest"), (style, style)
        for which in ("middle", "last"):
            name = f"after {word}, cancel the {which}"
            yield name, n.go_behind_and_cancel(which), (style, style)
        yield f"latest {word}, claim", n.latest_and_claim(), (style, OURS)
        yield f"retry {word}, claim the next", n.retry_and_claim(), (style, OURS)
    yield "after, after, finish", n.two_go_behind("after", ends=True), (OURS, CALLER, OURS)
    yield "cancel two of a line", n.cancel_two(), (OURS, CALLER)


def lanes() -> Iterator[tuple[str, Meeting[Any], tuple[Style, ...]]]:
    """G1–G3."""
    yield "claim lanes, claim lanes", g.claim_and_claim(), (OURS, OURS)
    for style in (OURS, CALLER):
        word = style.value
        yield f"claim lane, fill {word}", g.claim_and_fill(False), (OURS, style)
        yield f"claim full lane, fill {word}", g.claim_and_fill(True), (OURS, style)
        yield f"claim lane, raise {word}", g.claim_and_limit(2), (OURS, style)
        yield f"claim lane, stop {word}", g.claim_and_limit(0), (OURS, style)
    for name, act in g.FREEING.items():
        style = CALLER if name in ("cancel", "delete") else OURS
        yield f"claim full lane, {name}", g.claim_and_free(act), (OURS, style)


NEW: dict[str, Case] = {
    name: (meeting, styles) for name, meeting, styles in (*cases(), *lines(), *lanes())
}
OLD: dict[str, Case] = {name: (meeting, styles) for name, meeting, styles in with_an_old_snapshot()}
CASES = {**NEW, **OLD}
SAMPLE = (
    "finish, sweep",
    "finish completed, finish failed, fail",
    "enqueue caller behind, finish completed, fail",
    "circle of two, finish",
    "prune, key any caller",
)


# The mutants of tests/mutants die of these; of the others `make test` runs every 24th.
KILLERS = {
    "claim, claim",
    "finish completed, finish completed, fail",
    "dedup, dedup, open ours",
    "enqueue ours behind, finish completed, fail",
    "enqueue behind, completed repeatable read",
    "enqueue behind, finish serializable",
    "enqueue caller behind, finish completed, fail",
    "sweep, renew",
    "sweep, claim",
    "after, after ours",
    "claim lanes, claim lanes",
    "claim full lane, finish",
}


def chosen(cases: Iterable[str]) -> list[str]:
    names = (name for name in cases if "fan-out" not in name)  # those have a test of their own
    return [name for name in names if name in KILLERS or drawn(name, 24)]


Open = Callable[[str], tuple[Interleaver, Store]]


@pytest.fixture(scope="session")
def open_on() -> Iterator[Open]:
    """An interleaver on a database of any server, made when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def open_(server: str) -> tuple[Interleaver, Store]:
            url = stack.enter_context(opened(server, Path())).url
            app = stack.enter_context(closing(Towline(url, clock=Clock(), notify=False)))
            return stack.enter_context(closing(Interleaver(url, sides=3))), app.runner.store

        yield open_


def explore(open_on: Open, server: str, name: str, **settings: Any) -> Report:
    interleaver, store = open_on(server)
    meeting, styles = CASES[name]
    report = interleaver.explore(store, meeting, styles, **settings)
    print(f"{server}: {name}: {report}")
    return report


@pytest.mark.parametrize("name", chosen(NEW))
def test_every_order_of_statements_ends_well(open_on: Open, name: str) -> None:
    """B2–B6, D1, D2, L1, L3, L5, R3: whatever the order, somebody wins and nothing is left over."""
    report = explore(open_on, servers.servers()[-1], name)
    assert report.findings == []
    assert report.schedules > 1


@pytest.mark.parametrize("name", [name for name in NEW if "fan-out" in name])
def test_F4_a_fan_out_is_there_as_a_whole_or_not_at_all(open_on: Open, name: str) -> None:
    report = explore(open_on, servers.servers()[-1], name)
    assert report.findings == []
    assert report.schedules > 1


@pytest.mark.parametrize("name", chosen(OLD))
def test_a_caller_with_an_old_snapshot_is_right_or_refused(open_on: Open, name: str) -> None:
    """B2, B3, B6, D1, R3, O1: at any level, and whatever the order, nobody is stuck or early."""
    report = explore(open_on, servers.servers()[-1], name)
    assert report.findings == []
    assert report.schedules > 1


@pytest.mark.parametrize("name", by_speed(SAMPLE[2:3], SAMPLE))
@pytest.mark.parametrize("server", servers.servers()[:-1])
def test_on_other_servers_too(open_on: Open, server: str, name: str) -> None:
    """The same, some of it, where locks are implemented by an older server."""
    report = explore(open_on, server, name)
    assert report.findings == []
    assert report.schedules > 1


@pytest.mark.parametrize("name", by_speed(["claim, claim"], ["sweep, renew", "claim, claim"]))
def test_schedules_that_are_not_run_would_end_in_no_other_way(open_on: Open, name: str) -> None:
    """All orders, not only those that can be told apart, end as the ones we run do."""
    few = explore(open_on, servers.servers()[-1], name)
    all_of_them = explore(open_on, servers.servers()[-1], name, reduce=False)
    assert all_of_them.schedules > few.schedules
    assert all_of_them.ends.keys() == few.ends.keys()
    assert all_of_them.findings == []


# Locks that are left out: the statement and its lock, a meeting that needs it, what is found.
PLANTS = {
    "a blocker is not shared": (
        {"chain_states": "FOR SHARE OF c"},
        "enqueue ours behind, finish completed, fail",
        "stuck: ",
    ),
    "a chain that ends is not held": (
        {"hold_ending": "FOR NO KEY UPDATE OF c SKIP LOCKED"},
        "enqueue caller behind, finish completed, fail",
        "stuck: ",
    ),
    "a chain that begins to wait is not held": (
        {"hold_chains": "FOR NO KEY UPDATE OF c"},
        "circle of two, complete",
        "refused: 0",
    ),
    "a dependent is not held": (
        {"hold_blocked": "FOR UPDATE OF l SKIP LOCKED"},
        "finish completed, finish completed, fail",
        "wait: ",
    ),
    "a job is looked at and then changed": (
        {"hold_jobs": "FOR UPDATE OF l"},
        "claim, replace ours",
        "arguments: ",
    ),
    "the chain that has the key is not kept": (
        {"read_key": "FOR KEY SHARE"},
        "prune, key any ours",
        "fault: ",
    ),
    "a gate is not held": (
        {"hold_gates": "FOR NO KEY UPDATE OF g SKIP LOCKED"},
        "claim lanes, claim lanes",
        "wait: ",
    ),
    "a claim passes over nobody": (
        {"claim_pending": "FOR UPDATE SKIP LOCKED"},
        "claim, claim",
        "wait: ",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_lock_that_is_left_out_is_found(open_on: Open, plant: str) -> None:
    """The interleaver finds bugs: each of these is one lock less."""
    changes, name, found = PLANTS[plant]
    interleaver, store = open_on(servers.servers()[-1])
    meeting, styles = CASES[name]
    report = interleaver.explore(without(store, changes), meeting, styles, enough=1)
    print(f"{plant}: {report}")
    assert any(finding.startswith(found) for finding in report.findings), report.findings


# Statements that tell a caller's level, a meeting in which he is refused for it, what is found.
LEVEL = "current_setting('transaction_isolation')"
UNTOLD = [
    ("chains_of_jobs", "enqueue behind, completed repeatable read", "stuck: "),
    ("chains_of_jobs", "retry repeatable read, enqueue behind", "states: "),
    ("hold_ending", "enqueue behind, finish repeatable read", "stuck: "),
    ("hold_running", "enqueue behind, finish with a key repeatable read", "stuck: "),
    ("hold_doomed", "delete repeatable read, enqueue behind", "stuck: "),
    ("hold_doomed_now", "prune repeatable read, enqueue behind", "edge: "),
]


@pytest.mark.parametrize(("statement", "name", "found"), UNTOLD)
def test_a_level_that_is_not_told_is_found(
    open_on: Open, statement: str, name: str, found: str
) -> None:
    """Each of these takes a caller with an old snapshot for one at READ COMMITTED (B2, B3, R3)."""
    interleaver, store = open_on(servers.servers()[-1])
    meeting, styles = CASES[name]
    careless = without(store, {statement: LEVEL}, "'read committed'")
    report = interleaver.explore(careless, meeting, styles, enough=1)
    print(f"{statement}: {report}")
    assert any(finding.startswith(found) for finding in report.findings), report.findings


def without(store: Store, changes: dict[str, str], instead: str = "") -> Store:
    """The store with statements that lack these words, or have others instead."""
    sql = Queries("towline.postgres", "towline_", "public")
    for name, words in changes.items():
        text = getattr(sql, name).text
        assert words in text
        setattr(sql, name, Query(name, text.replace(words, instead)))
    return PostgresStore(sql, None, store.clock)
