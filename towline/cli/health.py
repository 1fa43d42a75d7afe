"""Commands that ask a port for health, and one that serves the metrics of the database."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING

import click

from ..exit_codes import FAILED, OK
from . import output
from .ending import CommandError
from .filters import as_json
from .target import Command

if TYPE_CHECKING:
    from ..app import Towline

DEFAULT = "127.0.0.1:9464"
PATIENCE = 5.0  # seconds for an answer


@click.command()
@click.argument("address", metavar="[HOST:PORT]", default=DEFAULT)
@click.option("--ready", is_flag=True, help="Whether it takes jobs, not only whether it lives.")
@as_json
def health(address: str, ready: bool, as_json: bool) -> int:
    """Ask a worker with --health how it is: exit code 0 or 1, for probes.

    HOST:PORT is 127.0.0.1:9464 unless it is said.
    """
    what = "ready" if ready else "live"
    said = _asked(address, f"/{what}z", what)
    if as_json:
        output.print_json(said)
    else:
        output.say(what if said[what] else f"not {what}: {said['why']}")
    return OK if said[what] else FAILED


def _asked(address: str, path: str, what: str) -> dict[str, object]:
    """What the port says; whoever does not answer as we do is not well."""
    from http.client import HTTPConnection, HTTPException

    from ..worker.health import address_of

    connection = HTTPConnection(*address_of(address), timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        said = json.loads(answer.read(10_000))
        return {what: answer.status == 200, "why": None, **said}
    except (OSError, HTTPException, ValueError, TypeError) as error:
        return {what: False, "why": f"no answer from {address}: {error}"}
    finally:
        connection.close()


@click.command(cls=Command)
@click.option("--health", metavar="HOST:PORT", default=DEFAULT, show_default=True)
def metrics(app: Towline, health: str) -> int:
    """Serve what the database knows as metrics for Prometheus, until stopped.

    One for an installation: /metrics, and /livez and /readyz as a worker has them.
    """
    from ..worker.health import ClusterHealth
    from ..worker.health.port import Port

    try:
        found = ClusterHealth(app)
    except ModuleNotFoundError as error:
        raise CommandError(f"metrics need {error.name}: pip install -e '.[prometheus]'") from error
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    port = Port(health, found)
    click.echo(f"metrics: http://{port.address}/metrics (Ctrl-C ends it)", err=True)
    while not over.wait(1.0):
        pass  # a signal is heeded between two waits
    port.close()
    return OK
