"""How much a limit leaves, and who gets it: arithmetic alone."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.store.limit import (
    NO_LIMIT,
    SLOTS,
    Allowance,
    LaneOffer,
    Numbers,
    Offer,
    QueueOffer,
    Spent,
    read_spent,
    share,
    slot_end,
    still_counts,
    write_spent,
)

SECOND = 1_000_000


def most_in_a_window(starts: list[tuple[int, int]], per: int) -> int:
    """The largest weight that began in any half-open window; starts in the order of time."""
    most = total = 0
    window: deque[tuple[int, int]] = deque()
    for at, weight in starts:
        window.append((at, weight))
        total += weight
        while window[0][0] <= at - per:
            total -= window.popleft()[1]
        most = max(most, total)
    return most


@pytest.mark.parametrize("seed", range(10))
def test_G4_never_more_than_the_rate_begins_in_any_window(seed: int) -> None:
    """1,000 random runs in all: restarts (all is read from what was written), weights, changed
    rates, pauses, times at the very edges of slots."""
    for run in range(100):
        draw = random.Random(f"{seed}/{run}")
        per = draw.choice([SECOND // 10, SECOND, 60 * SECOND, 3_333_333])
        rate = draw.randint(1, 30)
        most = rate
        now, text = draw.randrange(10**15), None
        starts: list[tuple[int, int]] = []
        width = -(-per // SLOTS)
        for _ in range(300):
            kind = draw.random()
            if kind < 0.3:
                now = slot_end(now, per) - draw.choice([0, 1])
            elif kind < 0.9:
                now += draw.randrange(width)
            else:
                now += draw.randrange(2 * per)
            if draw.random() < 0.01:
                rate = draw.randint(1, most)
            weight = draw.randint(1, min(3, rate))
            allowance = Allowance(Numbers(None, rate, per), 0, read_spent(text), now)
            while draw.random() < 0.9 and allowance.admits(weight):
                allowance.take(weight)
                starts.append((now, weight))
            assert len(allowance.spent) <= SLOTS + 1
            text = write_spent(allowance.spent)
        assert most_in_a_window(starts, per) <= most


@pytest.mark.parametrize("rate", [1, 7, 100])
def test_G4_a_saturated_rate_is_used_to_nine_tenths(rate: int) -> None:
    per, spent, began = 60 * SECOND, list[tuple[int, int]](), 0
    step = per // 500
    for moment in range(0, 100 * per, step):
        allowance = Allowance(Numbers(None, rate, per), 0, spent, moment)
        while allowance.admits(1):
            allowance.take(1)
            began += 1
        spent = allowance.spent
    assert 0.9 * 100 * rate <= began <= 101 * rate


def test_G4_when_it_opens_is_when_it_admits() -> None:
    numbers = Numbers(None, 3, SECOND)
    allowance = Allowance(numbers, 0, [], 5 * SECOND + 1)
    for _ in range(3):
        allowance.take(1)
    opens = allowance.opens_at(1)
    assert opens is not None
    assert 6 * SECOND < opens <= 6 * SECOND + SECOND // SLOTS
    assert not Allowance(numbers, 0, allowance.spent, opens - 1).admits(1)
    assert Allowance(numbers, 0, allowance.spent, opens).admits(1)


def test_G4_a_clock_that_steps_back_neither_forgets_nor_closes_for_ever() -> None:
    numbers, hour = Numbers(None, 2, SECOND), 3600 * SECOND
    allowance = Allowance(numbers, 0, [], 2 * hour)
    allowance.take(2)
    back = Allowance(numbers, 0, allowance.spent, hour)
    assert not back.admits(1)
    later = Allowance(numbers, 0, back.spent, hour + 2 * SECOND)
    assert later.admits(2)


def test_G4_a_lower_rate_counts_what_began_under_the_higher() -> None:
    allowance = Allowance(Numbers(None, 10, SECOND), 0, [], 0)
    allowance.take(5)
    assert not Allowance(Numbers(None, 5, SECOND), 0, allowance.spent, 1).admits(1)
    assert Allowance(Numbers(None, 6, SECOND), 0, allowance.spent, 1).admits(1)


def test_what_did_not_begin_is_given_back() -> None:
    allowance = Allowance(Numbers(4, 4, SECOND), 0, [], 0)
    allowance.take(3)
    allowance.take(1)
    allowance.give_back(3)
    assert allowance.admits(3)
    assert not allowance.admits(4)
    allowance.give_back(1)
    assert allowance.spent == []
    assert allowance.remembered_until is None


def test_G1_a_job_heavier_than_its_limit_runs_alone() -> None:
    assert Allowance(Numbers(2), 0, [], 0).has_slots(3)
    assert not Allowance(Numbers(2), 1, [], 0).has_slots(3)
    assert not Allowance(Numbers(0), 0, [], 0).has_slots(1)
    rated = Allowance(Numbers(None, 2, SECOND), 0, [], 0)
    assert rated.admits(3)
    rated.take(1)
    assert not rated.admits(3)


# ---- shares


def jobs(number: int, priority: int = 0, first: int = 1, weight: int = 1) -> deque[Offer]:
    return deque(Offer(first + n, priority, weight) for n in range(number))


def free(numbers: Numbers = NO_LIMIT, running: int = 0) -> Allowance:
    return Allowance(numbers, running, [], 0)


def lane(
    name: str, number: int, served_at: int = 0, *, most: int | None = None, **of: int
) -> LaneOffer:
    return LaneOffer(name, served_at, jobs(number, **of), free(Numbers(most)))


def test_G7_plain_jobs_and_lanes_of_one_priority_have_half_each() -> None:
    queue = QueueOffer("q", free(), jobs(10), [lane("a", 10), lane("b", 10)])
    assert share(8, [queue]) == 8
    assert len(queue.taken) == 4
    assert [len(each.taken) for each in queue.lanes] == [2, 2]


def test_G7_what_one_party_cannot_use_goes_to_the_other() -> None:
    queue = QueueOffer("q", free(), jobs(1), [lane("a", 10, most=2), lane("b", 10)])
    assert share(8, [queue]) == 8
    assert (len(queue.taken), [len(each.taken) for each in queue.lanes]) == (1, [2, 5])
    assert queue.lanes[0].refused
    assert not queue.full


def test_G7_with_room_for_one_each_party_comes_in_its_turn() -> None:
    got = Counter[str]()
    for start in range(4):
        queue = QueueOffer("q", free(), jobs(1), [lane("a", 1)])
        other = QueueOffer(None, free(), jobs(1))
        assert share(1, [queue, other], start) == 1
        got["plain"] += len(queue.taken)
        got["lanes"] += len(queue.lanes[0].taken)
        got["others"] += len(other.taken)
    assert min(got.values()) >= 1


def test_G7_priority_goes_before_turns() -> None:
    queue = QueueOffer(
        "q", free(), jobs(2, priority=1),
        [lane("low", 3, 0, priority=0), lane("high", 3, 9, priority=2)],
    )  # fmt: skip
    assert share(6, [queue]) == 6
    assert (len(queue.taken), [len(each.taken) for each in queue.lanes]) == (2, [1, 3])


def test_G6_lanes_take_one_job_each_least_recently_served_first() -> None:
    queue = QueueOffer("q", free(), lanes=[lane("a", 9, 3), lane("b", 9, 1), lane("c", 9, 2)])
    assert share(4, [queue]) == 4
    assert [(each.lane, len(each.taken), each.turn) for each in queue.lanes] == [
        ("a", 1, 3), ("b", 2, 4), ("c", 1, 2),
    ]  # fmt: skip


def test_G1_a_heavy_job_is_waited_for_and_not_overtaken() -> None:
    queue = QueueOffer(
        "q", free(Numbers(3), 1), lanes=[lane("heavy", 1, 0, weight=3), lane("light", 3, 1)]
    )
    assert share(5, [queue]) == 0
    assert queue.full


def test_a_lane_without_room_keeps_nobody_else_waiting() -> None:
    queue = QueueOffer("q", free(), lanes=[lane("full", 5, most=0), lane("open", 5, 1)])
    assert share(3, [queue]) == 3
    assert queue.lanes[0].refused
    assert not queue.lanes[0].taken


@st.composite
def queues(draw: st.DrawFn) -> list[QueueOffer]:
    found: list[QueueOffer] = []
    numbers = st.one_of(st.none(), st.integers(0, 6))
    weights = st.integers(1, 4)

    def line() -> deque[Offer]:
        rows = draw(st.lists(st.tuples(st.integers(0, 2), weights), max_size=6))
        ordered = sorted(rows, key=lambda row: -row[0])
        return deque(Offer(n, p, w) for n, (p, w) in enumerate(ordered))

    def allowance(now: int) -> Allowance:
        spent: Spent = draw(st.lists(st.tuples(st.integers(0, SECOND), weights), max_size=2))
        limit = Numbers(draw(numbers), draw(st.one_of(st.none(), st.integers(1, 6))), SECOND)
        return Allowance(limit, draw(st.integers(0, 3)), spent, now)

    for number in range(draw(st.integers(1, 3))):
        lanes = [
            LaneOffer(f"l{n}", draw(st.integers(0, 9)), line(), allowance(SECOND))
            for n in range(draw(st.integers(0, 4)))
        ]
        found.append(QueueOffer(f"q{number}", allowance(SECOND), line(), lanes))
    return found


def parts(queue: QueueOffer) -> list[QueueOffer | LaneOffer]:
    return [queue, *queue.lanes]


@settings(max_examples=300, deadline=None)
@given(queues(), st.integers(0, 20), st.integers(0, 9))
def test_G1_a_share_keeps_every_limit_and_leaves_no_room_unused(
    offered: list[QueueOffer], room: int, start: int
) -> None:
    before = {
        id(part): (part.allowance.running, sum(n for _, n in part.allowance.spent))
        for queue in offered
        for part in parts(queue)
    }
    chosen = share(room, offered, start)
    assert chosen <= room
    assert chosen == sum(
        len(queue.taken) + sum(len(lane.taken) for lane in queue.lanes) for queue in offered
    )
    for queue in offered:
        for part in parts(queue):
            taken = list(part.taken)
            if isinstance(part, QueueOffer):
                taken += [job for lane in part.lanes for job in lane.taken]
            weight = sum(job.weight for job in taken)
            running, spent = before[id(part)]
            most, rate, _ = part.allowance.numbers
            if taken and most is not None:
                assert most > 0
                assert running + weight <= most or (running == 0 and len(taken) == 1)
            if taken and rate is not None:
                assert spent + weight <= rate or (spent == 0 and len(taken) == 1)
    if chosen < room:  # then nothing that is next could begin
        for queue in offered:
            if queue.full:
                continue
            assert not queue.plain
            assert not any(lane.jobs and not lane.refused for lane in queue.lanes)


def test_G6_equal_lanes_differ_by_at_most_one_job_in_a_round() -> None:
    served, got = dict.fromkeys(map(str, range(51)), 0), Counter[str]()
    turn = 0
    for _ in range(200):
        first = sorted(served, key=lambda name: served[name])[:16]
        queue = QueueOffer("q", free(), lanes=[lane(name, 3, served[name]) for name in first])
        assert share(16, [queue]) == 16
        for each in queue.lanes:
            got[each.lane] += len(each.taken)
            served[each.lane] = turn + each.turn
        turn += queue.turns
    assert max(got.values()) - min(got.values()) <= 1


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 9)), max_size=40),
    st.integers(0, 10**7),
)
def test_what_still_counts_is_written_and_read_as_it_is(spent: Spent, now: int) -> None:
    kept = still_counts(spent, now, SECOND)
    assert read_spent(write_spent(kept)) == kept
    assert still_counts(kept, now, SECOND) == kept
    assert all(now < end + SECOND for end, _ in kept)
