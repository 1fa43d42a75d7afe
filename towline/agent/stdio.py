"""Agents over stdin and stdout: the client starts the server, and it ends with the client.

What the application prints must not come between: the wire is taken away from the descriptors 0 and
1 before the application is imported. Reading them then gives nothing, printing goes to stderr.
"""

from __future__ import annotations

import os
import signal
import threading
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.server import Server

GRACE = 3.0  # seconds from the end of the client to the end of the process


class Wire:
    """Stdin and stdout of the process, for the protocol alone; children do not inherit them."""

    def __init__(self) -> None:
        self._read, self._write = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no stderr
            os.dup2(nothing, 1)
        os.close(nothing)

    def serve(self, server: Server[Any]) -> None:
        """Answer until the client goes away."""
        import anyio

        # Ctrl-C ends the process as a kill would: the thread that reads cannot be woken, and what
        # has not been committed is not there.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        anyio.run(self._serve, server)

    async def _serve(self, server: Server[Any]) -> None:
        import anyio
        from mcp.server.stdio import stdio_server

        # Never closed: a thread of the transport may still read when this ends.
        read = _Inward(os.fdopen(self._read, "rb", closefd=False), "utf-8", "replace")
        write = _Outward(os.fdopen(self._write, "wb", closefd=False), "utf-8")
        async with stdio_server(anyio.wrap_file(read), anyio.wrap_file(write)) as (inward, outward):
            await server.run(inward, outward, server.create_initialization_options())


class _Inward(TextIOWrapper):
    """What the client says, up to its end."""

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        line = super().readline(-1 if size is None else size)
        if not line:
            _leave()
        return line


class _Outward(TextIOWrapper):
    """What the client is told, as long as it listens."""

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            _leave()


def _leave() -> None:
    """See that the process ends: in order, or, where a call or a thread of the application goes on,
    without."""
    last = threading.Timer(GRACE, os._exit, (0,))
    last.daemon = True
    last.start()
