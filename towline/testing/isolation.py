"""The application's own app on a throw-away database, for as long as a test needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from ..app import Towline


@contextmanager
def isolated(
    app: Towline | None = None, *, clock: Callable[[], int] | None = None
) -> Iterator[Towline]:
    """Point the app, tasks and all, at an empty SQLite file; put it back afterwards.

    Without an app a new one is made. The file is gone after the block. Jobs of the real database
    are neither seen nor touched, and a worker of the real one must not run in this process.
    """
    with TemporaryDirectory(prefix="towline-test-") as folder:
        url = f"sqlite:///{folder}/test.db"
        if app is None:
            app = Towline(url, durable=False, clock=clock)
            before = None
        else:
            before = app.url
            app.use(url, durable=False, clock=clock)
        try:
            app.migrate()
            yield app
        finally:
            app.close()
            if before is not None:
                app.use(before)
