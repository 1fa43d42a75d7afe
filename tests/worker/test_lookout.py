"""When a worker looks before it takes a turn, and when it need not (W6, L7)."""

from __future__ import annotations

import time

from tests.kit import CLAIMED
from towline.records import Claimed
from towline.store.finish import Finished
from towline.store.turn import Peeked, Turn
from towline.worker.lookout import BUSY_INTERVAL, Lookout, Prefetch


def idle(*, may_try: bool = True, rank: int = 0) -> Lookout:
    """A worker that has looked and found nothing."""
    lookout = Lookout(Prefetch(), several=False, may_try=may_try)
    lookout.rank = rank
    lookout.may_have_work = False
    lookout.looked(Peeked(0, False, None, 0), (), let_others_first=False)
    return lookout


def turn(*claimed: Claimed) -> Turn:
    return Turn(Finished(), list(claimed), {}, 0, None, 0)


def test_W6_the_first_of_the_idle_answers_a_wake_with_a_turn_and_looks_later() -> None:
    lookout = idle()
    assert not lookout.tries()  # nobody has called
    before = lookout.look_at
    lookout.woken = True
    assert lookout.tries()
    assert lookout.may_have_work
    assert not lookout.woken
    lookout.took(turn(CLAIMED), 8)
    assert not lookout.tries()
    assert not lookout.may_have_work
    assert lookout.look_at < before


def test_W6_the_look_owed_after_a_wake_is_not_put_off_by_further_turns() -> None:
    lookout = idle()
    lookout.woken = True
    assert lookout.tries()
    lookout.took(turn(CLAIMED), 1)
    lookout.took(turn(), 8)
    assert lookout.look_at <= time.monotonic() + BUSY_INTERVAL
    lookout.looked(Peeked(0, False, None, 0), (), let_others_first=False)
    lookout.took(turn(), 8)
    assert lookout.look_at > time.monotonic() + BUSY_INTERVAL


def test_W6_others_look_first_and_so_does_whoever_would_keep_out_all_writers() -> None:
    for lookout in (idle(rank=1), idle(may_try=False)):
        lookout.woken = True
        assert not lookout.tries()
        assert lookout.wants_look(0.0)


def test_W6_who_came_in_vain_looks_before_the_next_turn_until_one_takes_something() -> None:
    lookout = idle()
    lookout.woken = True
    assert lookout.tries()
    lookout.took(turn(), 8)
    lookout.woken = True
    assert not lookout.tries()
    assert lookout.wants_look(0.0)
    lookout.woken = False
    lookout.took(turn(CLAIMED), 8)
    lookout.woken = True
    assert lookout.tries()


def test_W6_who_claimed_alone_in_vain_looks_once_and_then_claims_again() -> None:
    lookout = idle()
    lookout.woken = True
    assert lookout.tries()
    nothing = turn()
    nothing.alone = True
    lookout.took(nothing, 8)
    assert lookout.woken  # for something that only a look or a whole turn sees
    assert not lookout.tries()
    assert lookout.wants_look(0.0)
    lookout.woken = False
    lookout.looked(Peeked(0, False, None, 0), (), let_others_first=False)
    lookout.woken = True
    assert lookout.tries()


def test_S3_a_claim_alone_leaves_what_is_due_as_it_was_known() -> None:
    lookout = idle()
    lookout.looked(Peeked(0, False, 5_000_000, 0), (), let_others_first=False)
    due = lookout.due
    lookout.woken = True
    assert lookout.tries()
    claimed = turn(CLAIMED)
    claimed.alone = True
    lookout.took(claimed, 8)
    assert due is not None
    assert lookout.due == due


def test_S3_wakes_that_come_one_after_the_other_do_not_put_the_look_off() -> None:
    """It sees what is due, and what another worker set aside."""
    lookout = idle()
    alone = turn(CLAIMED)
    alone.alone = True
    end = time.monotonic() + 2 * BUSY_INTERVAL
    while time.monotonic() < end:
        lookout.woken = True
        if not lookout.tries():
            break
        lookout.took(alone, 8)
    assert lookout.woken
    assert lookout.wants_look(time.monotonic())
