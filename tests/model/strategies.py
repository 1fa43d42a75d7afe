"""What hypothesis draws: jobs, endings and filters before anybody has a name, and how often each.

Who is meant is drawn as a number that counts back from the newest; a negative one means somebody
who is gone: a claim that was lost, a job that was deleted or rolled back. So shrinking keeps its
sense, and stale handles are used on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.kit import DAY, MINUTE, SECOND
from tests.model.program import Keep, Plan, said
from towline.model import Outcome, Policy, State

TASKS = ("a", "b")
QUEUES = ("default", "mail")


@dataclass(frozen=True)
class Draft:
    """A job to be stored, before it has a name and its blockers have theirs.

    `after`: a stored chain (0 is the newest), a job of the same batch (-1 the first), or one that
    is gone (-4).
    """

    task: str = "a"
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    scope: tuple[str, int | None] = ("open", None)
    on_conflict: str = "return"
    time: tuple[str, int] | None = None
    after: Sequence[int] = ()
    named: bool = False
    policy: Policy = Policy.FAIL
    max_attempts: int = 2
    extra: bool = False
    lane: str | None = None
    weight: int | None = None
    expires: int | None = None

    def __repr__(self) -> str:
        return said(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(said(self))


Drawn = tuple[int, str, int, Draft]
"""A claim, how it ended, after which delay it is tried again, what follows it."""

CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "after": st.lists(st.integers(-4, 5), min_size=1, max_size=3),
    "policy": st.sampled_from((Policy.WAIT, Policy.RUN)),
    "key": st.sampled_from(("k", "l")),
    "scope": st.sampled_from((("any", None), ("any", 10 * SECOND), ("any", 5 * MINUTE))),
    "on_conflict": st.sampled_from(("replace", "raise", "after", "latest", "after")),
    "time": st.sampled_from((
        ("delay", 10), ("delay", 0), ("delay", -5), ("at", 60), ("at", -60)
    )),
    "priority": st.sampled_from((5, 0)),
    "queue": st.sampled_from(("mail", "default")),
    "max_attempts": st.sampled_from((1, 3)),
    "task": st.just("b"),
    "named": st.just(True),
    "extra": st.just(True),
    "lane": st.sampled_from(("x", "y")),
    "weight": st.sampled_from((2, 3)),
    "expires": st.sampled_from((20 * SECOND, 5 * MINUTE)),
}  # fmt: skip
"""What a draft may say other than usual."""

HOW = (*["completed"] * 6, "continued", "continued", "waiting", "fanned out", "failed",
       "failed for good", "timeout", "timeout for good", "snoozed", "cancelled", "lost",
       "lost for good", "released", "never started")  # fmt: skip
PUT_BACK = ("failed", "timeout", "lost", "snoozed")
GO_ON = ("continued", "waiting", "fanned out")

CLAIM = st.sampled_from((0, 1, 2, 3, 4, -1, -2))
LEVEL = st.sampled_from((None, None, None, "REPEATABLE READ", "SERIALIZABLE"))
AHEAD = st.sampled_from((0, 1, 0, 3))
BEGUN = st.sampled_from((None, "none", "some", "all"))
DELAY = st.sampled_from((0, 10 * SECOND, -SECOND, 2 * MINUTE))


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    told = draw(st.lists(st.sampled_from(list(CHOICES)), unique=True, max_size=8))
    return Draft(**{name: draw(CHOICES[name]) for name in told})


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    return Plan(
        draw(st.sampled_from(("s", "t"))), draw(st.sampled_from(TASKS)),
        draw(st.sampled_from((MINUTE, 7 * SECOND))), draw(st.sampled_from(QUEUES)),
        draw(st.sampled_from((1, 0, 3))),
        draw(st.sampled_from(("skip", "queue", "allow", "replace"))),
        draw(st.sampled_from((None, None, 30 * SECOND))),
    )  # fmt: skip


@st.composite
def endings(draw: st.DrawFn) -> Drawn:
    number, how = draw(CLAIM), draw(st.sampled_from(HOW))
    delay = draw(DELAY) if how in PUT_BACK else 0
    return number, how, delay, draw(DRAFT) if how in GO_ON else Draft()


@st.composite
def wheres(draw: st.DrawFn) -> dict[str, Any]:
    told = draw(st.lists(st.sampled_from(list(FILTERS)), unique=True, max_size=3))
    return {name: draw(FILTERS[name]) for name in told}


@st.composite
def operations(draw: st.DrawFn) -> tuple[Any, ...]:
    """A deed by name, and what it is told."""
    deed = draw(
        st.sampled_from([deed for deed, (often, *_) in DEEDS.items() for _ in range(often)])
    )
    return deed, *(draw(word) for word in DEEDS[deed][1:])


DRAFT = drafts()
DRAFTS = st.lists(DRAFT, min_size=1, max_size=4)
END = endings()
ENDS = st.lists(END, min_size=1, max_size=4)
JOB = st.sampled_from((0, 1, 2, 3, 4, 5, 6, -1, -2))
BEHIND = st.lists(st.integers(0, 3), min_size=1, max_size=2)
WORKER = st.sampled_from((0, 1, 2, -1))
LEASE = st.sampled_from((30 * SECOND, SECOND, 5 * MINUTE))
LIMIT = st.sampled_from((100, 1, 2))
BY = st.sampled_from((None, "ann"))
AGE = st.sampled_from((MINUTE, 0, None, 0, 10 * MINUTE, DAY))
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from(State),
    "outcome": st.sampled_from(Outcome),
    "task": st.sampled_from(TASKS),
    "queue": st.sampled_from(QUEUES),
    "chain": st.integers(0, 5),
    "key": st.just("k"),
    "label": st.integers(0, 5),
    "since": st.sampled_from((-5, -60)),
    "until": st.sampled_from((0, -30)),
}
WHERE = wheres()

DEEDS: dict[str, tuple[Any, ...]] = {
    "nothing": (1,),  # the simplest, so that hypothesis tries long programs without most operations
    "enqueue": (5, DRAFTS),
    "enqueue_behind": (6, DRAFT, BEHIND),
    "claim": (
        6, WORKER, st.sampled_from((QUEUES, QUEUES, QUEUES, QUEUES[:1], QUEUES[1:])),
        st.integers(1, 4), st.sampled_from((True, True, True, False)), AHEAD,
    ),
    "turn": (
        8, WORKER, st.integers(0, 3), st.lists(END, max_size=2), st.booleans(), AHEAD,
        st.lists(CLAIM, max_size=2), st.lists(CLAIM, max_size=1),
    ),
    "begin": (3, st.lists(CLAIM, min_size=1, max_size=3)),
    "fail_over": (1, st.integers(1, 2), END),
    "finish": (14, ENDS, st.sampled_from((0, 0, 1))),
    "renew": (2, WORKER, LEASE, st.lists(CLAIM, max_size=4)),
    "park": (2, st.lists(CLAIM, min_size=1, max_size=3)),
    "progress": (2, st.lists(CLAIM, min_size=1, max_size=3)),
    "register": (1, LEASE),
    "unregister": (1, WORKER),
    "ask": (2, WORKER, CLAIM, st.integers(1, 2)),
    "promote": (2, LIMIT),
    "unpark": (
        4, st.sampled_from((TASKS, TASKS[:1], TASKS[1:])),
        st.sampled_from((QUEUES, QUEUES[:1], QUEUES[1:])), LIMIT,
    ),
    "drop_orphans": (1, st.sampled_from(QUEUES), st.integers(0, 2)),
    "sweep": (
        3, st.none() | st.lists(WORKER, max_size=2), st.lists(WORKER, max_size=1), LIMIT,
        BEGUN,
    ),
    "crash": (2, st.integers(1, 3), AHEAD, BEGUN),
    "control": (6, st.sampled_from(("cancel", "fail", "complete")), JOB, BY),
    "go_on": (2, JOB, BY, DRAFTS),
    "topple": (4, BEHIND, st.sampled_from(("fail", "cancel")), DRAFTS, st.booleans()),
    "entangle": (1, st.sampled_from(Policy)),
    "run_now": (1, JOB),
    "retry": (4, JOB, st.sampled_from((False, False, True))),
    "pause_or_resume": (2, st.sampled_from(QUEUES)),
    "set_limit": (
        3, st.sampled_from((None, None, "*", "*", "x")), st.sampled_from((1, 2, 0, 3, None)),
        st.sampled_from((None, None, 2, 4)),
    ),
    "line_up": (
        3, st.lists(DRAFT, min_size=2, max_size=4),
        st.lists(st.sampled_from(("after", "latest")), min_size=2, max_size=4),
    ),
    "set_schedule": (3, plans()),
    "of_schedule": (
        3, st.sampled_from(("pause", "resume", "resume", "run", "delete")),
        st.sampled_from(("s", "t")),
    ),
    "fire": (6, st.sampled_from((1, 1, 8, 61, 200))),
    "delete": (3, JOB, st.booleans()),
    "prune": (2, st.builds(Keep, AGE, AGE, AGE), st.sampled_from((100, 1, 3))),
    "bulk": (2, st.sampled_from(("cancel", "retry")), WHERE, st.booleans(), LIMIT, BY),
    "page": (3, st.sampled_from(("jobs", "chains")), WHERE, LIMIT, st.booleans()),
    "look": (2, st.sampled_from(("job", "chain", "ended", "attempts", "dependents")), JOB),
    "move": (5, st.sampled_from((1, 11, 31, 61, 700, 100_000, -1, -20, -1700))),
    "switch": (1,),
    "transact": (
        8,
        st.sampled_from((
            "commit", "rollback", "savepoint", "rollback_to", "rollback", "release", "commit",
        )),
        LEVEL,
    ),
}  # fmt: skip
"""What a program may do next: how often, and what it is told."""
LIMITED = st.booleans()
"""Programs with limits and lanes leave room for all: who begins first is the engine's choice."""
LEFT_OUT = st.sets(st.sampled_from(list(DEEDS)[2:]), max_size=8)
"""Programs that lack something go further in the rest."""
