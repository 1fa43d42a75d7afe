"""`towline dashboard`: the dashboard behind a server of its own."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..app import Towline
from . import logs
from .ending import CommandError, end_with
from .target import Command

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HOST, PORT = "127.0.0.1", 8383
IDLE = (
    75  # seconds that a connection may rest: open pages ask every five, and must not meet its end
)


@click.command(cls=Command)
@click.option("--host", default=HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free."
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with the token, at least 16 characters; or $TOWLINE_DASHBOARD_TOKEN.",
)
@click.option("--read-only", is_flag=True, help="Look, and no actions.")
@click.option(
    "--name",
    "names",
    multiple=True,
    help="A host name it answers under, and no other then, such as a proxy's; repeat it.",
)
@click.option("--socket", "inherited", type=int, hidden=True)
@click.option("--until", type=int, hidden=True)
def dashboard(
    app: Towline,
    host: str,
    port: int,
    token_file: Path | None,
    read_only: bool,
    names: tuple[str, ...],
    inherited: int | None,
    until: int | None,
) -> None:
    """Serve the dashboard, on this machine unless it has a token."""
    logs.open_streams()
    site = site_of(app, host, token_file, names, read_only=read_only)
    logs.begin(None, as_json=False)  # it says who did what
    if until is not None:
        end_with(until)
    with listening_on(host, port) if inherited is None else socket.socket(fileno=inherited) as own:
        serve(site, host, own)


def site_of(
    app: Towline, host: str, token_file: Path | None, names: Collection[str], *, read_only: bool
) -> ASGIApp:
    """The dashboard as ASGI application, refused where nothing would guard it."""
    try:
        from .. import dashboard
        from ..access import HOW, is_loopback
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the dashboard needs {error.name}: pip install -e '.[dashboard]'"
        ) from error
    token = os.environ.get(dashboard.TOKEN_VARIABLE) or None
    if token_file is not None:
        token = token_in(token_file)
    if token is None and not is_loopback(host):
        raise CommandError(
            f"{host} can be reached from other machines, and nothing would guard the dashboard: "
            f"name a --token-file or set ${dashboard.TOKEN_VARIABLE}, or mount it in your "
            f"application. {HOW[0].upper()}{HOW[1:]}"
        )
    try:
        hosts = names or names_of(host)
        return dashboard.asgi(app, token=token, read_only=read_only, hosts=hosts)
    except ValueError as error:
        raise CommandError(str(error)) from error


def names_of(host: str) -> list[str]:
    """Where a name is listened on, that and its addresses; any address else, for which no name
    needs to be said."""
    from ..access import is_address

    if host == "localhost" or is_address(host):
        return []
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        found = []  # nor can it be listened on, which is said there
    return [host, *sorted({str(place[0]) for *_, place in found})]


def token_in(file: Path) -> str:
    """What a file has been made for: without a token in it nothing would guard the dashboard."""
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from error
    if not token:
        raise CommandError(f"{file} is empty: write a token of at least 16 characters into it")
    return token


def listening_on(host: str, port: int) -> socket.socket:
    """A socket of its own, or why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}, port {port}: {error.strerror}") from error


def serve(site: ASGIApp, host: str, listening: socket.socket) -> None:
    """Until a signal comes; says where first."""
    import uvicorn

    # Inherited by each connection: an answer goes out in two parts, and the second would wait for
    # the reader to acknowledge the first, 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if ":" in host else host
    place = f"http://{shown}:{listening.getsockname()[1]}/"
    click.echo(f"dashboard: {place} (Ctrl-C ends it)", err=True)
    config = uvicorn.Config(
        site,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=IDLE,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        # The server ends at one, then raises it again: that is no reason to die of it.
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run([listening])
