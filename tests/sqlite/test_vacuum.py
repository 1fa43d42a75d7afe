"""R6 on SQLite: free pages go back to the file system, as many as one asks for."""

from __future__ import annotations

from pathlib import Path

from tests.kit import Clock, new, rows
from towline import Towline


def test_R6_vacuum_gives_pages_back_a_bounded_number_at_a_time(
    app: Towline, clock: Clock, database: Path
) -> None:
    def pages() -> tuple[int, int]:
        (count,), (free,) = (
            rows(database, f"PRAGMA {p}")[0] for p in ("page_count", "freelist_count")
        )
        return count, free

    app.runner.run(app.runner.store.enqueue([new(arguments=f'"{"x" * 2000}"') for _ in range(200)]))
    assert app.cancel_many(everything=True) == 200
    full, free = pages()
    clock.advance(31 * 86400)
    assert app.prune() == 200
    held, free = pages()
    assert held == full
    assert free > 80
    assert app.vacuum(10) == 10
    assert pages() == (full - 10, free - 10)
    assert app.vacuum() == free - 10
    assert pages() == (full - free, 0)
    assert app.vacuum() == 0
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]
