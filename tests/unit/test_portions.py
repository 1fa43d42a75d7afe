"""Statements are bounded in rows and in bytes (finding P19)."""

from __future__ import annotations

from pathlib import Path

from tests.kit import new
from towline import Towline
from towline.operation import Mark, Op, Steps
from towline.store.enqueue import PORTION, portions
from towline.store.ground import CHUNK


def test_portions_are_bounded_in_number_and_in_size_and_leave_nothing_out() -> None:
    small = ["x"] * (2 * CHUNK + 1)
    assert [len(part) for part in portions(small, len)] == [CHUNK, CHUNK, 1]
    large = ["y" * (PORTION // 3)] * 7 + ["z" * (PORTION * 2), "x"]
    parts = list(portions(large, len))
    assert [row for part in parts for row in part] == large
    assert [len(part) for part in parts] == [3, 3, 1, 1, 1]
    assert list(portions([], len)) == []


def test_keyed_jobs_with_large_arguments_are_stored_some_at_a_time(tmp_path: Path) -> None:
    app = Towline(f"sqlite:///{tmp_path}/large.db")
    jobs = [new(key=f"k{n}", arguments='"' + "a" * 1_000_000 + '"') for n in range(20)]
    sizes: list[int] = []

    def steps() -> Steps[int]:
        running = iter(app.runner.store.enqueue(jobs))
        try:
            statement = next(running)
            while True:
                if not isinstance(statement, Mark):
                    sizes.append(sum(len(str(row)) for row in statement.rows or ()))
                statement = running.send((yield statement))
        except StopIteration as stop:
            return len(stop.value)

    assert app.runner.run(Op("enqueue", steps)) == 20
    assert max(sizes) < PORTION * 1.1
    app.close()
