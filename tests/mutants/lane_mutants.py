"""Bugs of limits and lanes: those of the design's list, and that they are noticed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tests.mutants.mutant import POSTGRES, SQLITE, Edit, Mutant
from towline.model import Live
from towline.operation import Row, Steps
from towline.postgres.gates import LANES_COLLECTED, NOTES_COLLECTED
from towline.postgres.store import PostgresStore
from towline.records import Ending
from towline.store import finish, gate
from towline.store.finish import Finished
from towline.store.gate import Passed
from towline.store.ground import Ground, as_json
from towline.store.lane import freed, tell
from towline.store.limit import Spent, slot_end

LANES = "conformance/test_lanes.py::{}[{{database}}: ours, blocking]"
OVERLAP = "races/test_lanes_overlap.py::{}[{{database}}]"
BETWEEN = (
    "races/test_lanes_overlap.py::test_G1_G2_whatever_comes_between_two_statements_of_a_claim"
    "[{}-{}-{{database}}]"
)

_finish = finish.finish
_claim = gate.claim


def leaves(way: str) -> str:
    test = "conformance/test_lanes.py::test_G2_whatever_ends_a_run_frees_its_slot"
    return f"{test}[{{database}}: ours, blocking-{way}]"


def tell_nothing(store: Ground, *_: Any) -> Steps[None]:
    return
    yield


def tell_for_all_that_were_sent(
    store: Ground, endings: Sequence[Ending], worker: str | None, slot: int,
    now: int | None = None, wakes: bool = True,
) -> Steps[Finished]:  # fmt: skip
    done = yield from _finish(store, endings, worker, slot, now, wakes)
    at = yield from store.now()
    held = [ending.held for ending in endings]
    yield from tell(store, [freed(h.queue, h.lane) for h in held if h.lane is not None], at)
    return done


def claim_ahead(
    store: Ground, worker: int, queues: Sequence[str], gated: Collection[str], room: int,
    ahead: int, name: str | None, now: int, *, whole: bool = True,
) -> Steps[Passed]:  # fmt: skip
    more = room + ahead
    return (yield from _claim(store, worker, queues, gated, more, 0, name, now, whole=whole))


def forget_a_slot_early(spent: Spent, now: int, per: int) -> Spent:
    """Slots from current - 19 on."""
    width, latest = -(-per // 20), slot_end(now, per)
    kept: dict[int, int] = {}
    for end, weight in spent:
        if end + per - width > now:
            kept[min(end, latest)] = kept.get(min(end, latest), 0) + weight
    return sorted(kept.items())


def hold_gates_after_reading(
    self: PostgresStore, queues: Sequence[str], now: int
) -> Steps[tuple[list[str], bool]]:
    self.__dict__["read_before"] = yield self.sql.read_gates(
        queues=as_json(queues), room=100, now=now
    )
    return (yield from _hold_gates(self, queues, now))


def read_as_it_was(
    self: PostgresStore, queues: Sequence[str], room: int, now: int
) -> Steps[tuple[int, list[Row]]]:
    return now, [row[1:] for row in self.__dict__["read_before"] if row[1] in queues]
    yield


def read_at_the_time_of_the_turn(
    self: PostgresStore, queues: Sequence[str], room: int, now: int
) -> Steps[tuple[int, list[Row]]]:
    _, rows = yield from _read_gates(self, queues, room, now)
    return now, rows


_hold_gates = PostgresStore.hold_gates
_read_gates = PostgresStore.read_gates


def hold_gates_alone(
    self: PostgresStore, queues: Sequence[str], now: int
) -> Steps[tuple[list[str], bool]]:
    rows = yield self.sql.hold_gates(queues=as_json(queues))
    return [str(queue) for queue, ours in rows if ours], False


def read_then_collect(
    self: PostgresStore, queues: Sequence[str], room: int, now: int
) -> Steps[tuple[int, list[Row]]]:
    """Notes are collected when what runs was counted."""
    listed = as_json(queues)
    yield self.sql.collect_notes(
        queues=listed, now=now, lanes=LANES_COLLECTED, notes=NOTES_COLLECTED
    )
    read = yield from _read_gates(self, queues, room, now)
    yield self.sql.collect_notes(
        queues=listed, now=now, lanes=LANES_COLLECTED, notes=NOTES_COLLECTED
    )
    return read


LANED = [
    Mutant(
        "a slot that comes free is not told",
        "What a finish, a release or a sweep puts back or ends leaves its lane closed.",
        "G2, G3",
        [leaves("ended"), leaves("was_released"), leaves("was_swept")],
        methods={"towline.store.finish._tell_lanes": tell_nothing},
        on=(SQLITE, POSTGRES),
        sign="assert [] == [",
    ),
    Mutant(
        "a cancelled slot is not told",
        "What control ends from outside leaves its lane closed.",
        "G2",
        [leaves("was_cancelled"), leaves("was_completed"), leaves("was_failed")],
        methods={"towline.store.control.tell": tell_nothing},
        on=(SQLITE, POSTGRES),
        sign="assert [] == [",
    ),
    Mutant(
        "put back outside of its lane",
        "A job of a lane that is given back becomes pending, where anybody takes it.",
        "G1",
        [leaves("was_released")],
        methods={"towline.store.finish.waiting_state": lambda lane: Live.PENDING},
        on=(SQLITE, POSTGRES),
        sign="== [1]",
    ),
    Mutant(
        "told for what was sent",
        "An ending that is refused opens its lane.",
        "G3",
        [LANES.format("test_G3_who_was_swept_and_comes_back_frees_nothing_twice")],
        methods={"towline.store.finish.finish": tell_for_all_that_were_sent},
        on=(SQLITE,),
        sign="assert 0 == 1",
    ),
    Mutant(
        "an empty lane forgets",
        "A lane's row is deleted with what it has spent.",
        "G4",
        [LANES.format("test_G4_a_lane_that_was_empty_meanwhile_remembers_what_it_has_spent")],
        methods={"towline.store.limit.Allowance.remembered_until": None},
        on=(SQLITE, POSTGRES),
        sign="is not None",
    ),
    Mutant(
        "a slot of the window is missing",
        "What began in the slot at the far edge of the window counts no more.",
        "G4",
        ["unit/test_limit.py::test_G4_never_more_than_the_rate_begins_in_any_window[0]"],
        methods={"towline.store.limit.still_counts": forget_a_slot_early},
        on=(SQLITE,),
        sign="assert",
    ),
    Mutant(
        "turns are not written",
        "A lane that was served stays the first.",
        "G6",
        [LANES.format("test_G6_with_room_for_one_lanes_come_in_turn_though_the_clock_steps_back")],
        {
            SQLITE: [
                Edit(
                    "save_lanes", "served_at = :served_at",
                    "served_at = CASE WHEN :served_at > 0 THEN served_at END",
                )
            ],
            POSTGRES: [Edit("save_lanes", "served_at = r.served_at", "served_at = n.served_at")],
        },
        sign="Counter",
    ),
    Mutant(
        "claims ahead from lanes",
        "Jobs of lanes and of limited queues are claimed for slots that are not free.",
        "G1",
        [LANES.format("test_G1_nothing_is_claimed_ahead_from_lanes_or_limited_queues")],
        methods={"towline.store.gate.claim": claim_ahead},
        on=(SQLITE, POSTGRES),
        sign="default",
    ),
    Mutant(
        "no gate",
        "Workers claim under one limit at the same time.",
        "G1",
        [OVERLAP.format("test_G1_while_one_claims_another_leaves_the_queue")],
        {POSTGRES: [Edit("hold_gates", "FOR NO KEY UPDATE OF g SKIP LOCKED", "")]},
        sign="assert not True",
    ),
    Mutant(
        "counted before the gate",
        "What runs, and who waits, is read before the gate is held.",
        "G1, G2",
        [OVERLAP.format("test_G1_what_began_before_the_gate_was_held_is_counted")],
        methods={
            "towline.postgres.store.PostgresStore.hold_gates": hold_gates_after_reading,
            "towline.postgres.store.PostgresStore.read_gates": read_as_it_was,
        },
        on=(POSTGRES,),
        sign="<= 2",
    ),
    Mutant(
        "judged by the time of the turn",
        "What a rate leaves is counted at a time from before the gate was held.",
        "G4",
        [
            OVERLAP.format(
                "test_G4_a_claim_whose_turn_began_long_before_its_gate_keeps_the_rate"
            )
        ],
        methods={
            "towline.postgres.store.PostgresStore.read_gates": read_at_the_time_of_the_turn,
        },
        on=(POSTGRES,),
        sign="<= 4",
    ),
    Mutant(
        "collected after counting",
        "A note that comes after the count is taken away with those before it.",
        "G2",
        [BETWEEN.format("full", "finishes")],
        methods={
            "towline.postgres.store.PostgresStore.hold_gates": hold_gates_alone,
            "towline.postgres.store.PostgresStore.read_gates": read_then_collect,
        },
        on=(POSTGRES,),
        sign="== []",
    ),
]  # fmt: skip
