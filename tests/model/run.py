"""Running programs: opening the engines, drawing so many programs from a seed, counting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import database as databases
from tests.kit import Clock
from tests.model.engine_driver import EngineDriver
from tests.model.machine import Machine
from tests.model.trace import Coverage, World, steady

STEPS = 50
CHECKS: list[Any] = list(HealthCheck)
TOGETHER = 11
"""Programs that are drawn in one go. From then on hypothesis would rather change those it has."""


def both() -> list[str]:
    """The databases that programs run on: SQLite, and the newest PostgreSQL if there is one."""
    return list(dict.fromkeys((databases.SQLITE, databases.newest())))


@contextmanager
def opened(names: Sequence[str]) -> Iterator[World]:
    """A model beside these databases, fresh ones."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="towline-model-")))
        stack.enter_context(steady())
        clock = Clock()
        sides: list[EngineDriver] = []
        for name in names:
            sides.append(EngineDriver(stack.enter_context(databases.opened(name, folder)), clock))
            stack.callback(sides[-1].close)
        yield World(sides, clock)


def run(world: World, programs: int, first: int, *, shrink: bool = True) -> Coverage:
    """Run at least so many programs, always the same for a seed; the first that fails is shrunk
    and raised."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    world.coverage = Coverage()
    number = first

    class Bound(Machine):
        pass

    Bound.world = world
    while world.coverage.programs < programs:
        run_state_machine_as_test(
            seed(number)(Bound),
            settings=settings(
                max_examples=TOGETHER,
                stateful_step_count=STEPS,
                phases=phases,
                database=None,
                deadline=None,
                derandomize=False,
                print_blob=False,
                report_multiple_bugs=False,
                verbosity=Verbosity.normal,
                suppress_health_check=CHECKS,
            ),
        )
        number += 1
    return world.coverage
