"""The worker command: one worker in this process, or several under a supervisor."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidSetting, TowlineError
from ..exit_codes import AT_ONCE
from ..times import micros
from . import logs
from .ending import CommandError, end_with
from .target import APP_VARIABLE, is_name, load

if TYPE_CHECKING:
    from ..worker.health.crew import CrewHealth

SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}
LEVELS = ("debug", "info", "warning", "error")
MOMENT = 1.0  # seconds
_SLOT = re.compile(r"towline-(\d+|loop|process)")
Options = dict[str, Any]  # what was said on the command line; None where nothing was
_SLOTS = re.compile(r"(.+)=(\d+)")
_BYTES = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)


def size_of(text: str) -> int:
    """A number of bytes: 536870912, 512M, 2G."""
    found = _BYTES.fullmatch(text.strip())
    if not found:
        raise click.BadParameter(f"{text!r} is not a size, such as 512M or 2G")
    return int(found[1]) << SHIFTS[found[2].lower()]


def seconds(text: str) -> float:
    """A time to wait."""
    try:
        given = float(text)
        micros(given)
    except (ValueError, InvalidSetting):
        given = -1.0
    if given < 0:
        raise click.BadParameter(f"{text!r} is not a number of seconds, such as 30 or 0.5")
    return given


def settings_of(options: Options) -> dict[str, Any]:
    """For `app.worker(...)`."""
    logging = ("log_level", "json_logs", "no_error_text")
    said = {k: v for k, v in options.items() if v is not None and k not in logging}
    said["error_text"] = not options["no_error_text"]
    if said.pop("once", False):
        if "max_jobs" in said:
            raise CommandError("--once is one job: no --max-jobs with it")
        said.update(drain=True, max_jobs=1)
    if "queues" in said:
        said["queues"] = queues_of(said["queues"])
    return said


def queues_of(text: str) -> list[str] | dict[str, int]:
    """Names, in order of preference, or each with its slots: mail,default or mail=2,default=6."""
    parts = [part for word in text.split(",") if (part := word.strip())]
    slots = [found for part in parts if (found := _SLOTS.fullmatch(part))]
    if not slots:
        return parts
    if len(slots) < len(parts):
        raise click.BadParameter("--queues has slots for each queue, such as mail=2,*=6, or none")
    return {found[1]: int(found[2]) for found in slots}


def words_of(options: Options, number: int) -> list[str]:
    """The same, for the command line of a child."""
    words: list[str] = []
    for key, value in options.items():
        option = "--" + key.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}-{number}" if key == "name" else f"{option}={value}")
    return words


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--app", "name_option", metavar="MODULE:APP", help="The same, as an option.")
@click.option(
    "--queues",
    metavar="A,B",
    help="Those to work on, the preferred first; '*' for all, -slow for all but that, mail=2,*=6 "
    "with slots for each.  [default: those of its tasks, all alike]",
)
@click.option("--concurrency", type=int, help="Attempts at a time, per process.  [default: 8]")
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Worker processes. From 2 on a supervisor starts one again that dies.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0),
    help="Jobs claimed ahead of free slots.  [default: by measurement]",
)
@click.option(
    "--lease",
    type=seconds,
    metavar="SECONDS",
    help="Seconds until its jobs are taken over.  [default: 30]",
)
@click.option(
    "--grace",
    type=seconds,
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="Seconds handlers may go on after a stop.",
)
@click.option("--drain", is_flag=True, help="Stop when nothing is left to do.")
@click.option("--once", is_flag=True, help="Run the next job, if there is one, and stop.")
@click.option("--max-jobs", type=click.IntRange(1), help="Stop after so many, per process.")
@click.option("--reload", is_flag=True, help="Start again when the code changes.")
@click.option("--name", help="How it is called in lists and in the history.")
@click.option("--max-tasks-per-child", type=int, help="Process slots: replaced after so many.")
@click.option(
    "--memory-limit",
    type=size_of,
    metavar="SIZE",
    help="Process slots: at most so much, such as 512M.",
)
@click.option(
    "--health",
    metavar="HOST:PORT",
    help="Answer /livez, /readyz and /metrics there, such as 127.0.0.1:9464.",
)
@click.option("--log-level", type=click.Choice(LEVELS), help="[default: info]")
@click.option("--json-logs", is_flag=True, help="One JSON object per line.")
@click.option("--no-error-text", is_flag=True, help="Log the kind of errors, not what they say.")
@click.option("--line", type=int, hidden=True)
@click.option("--asks", type=int, hidden=True)
@click.option("--until", type=int, hidden=True)
def worker(
    app: str | None,
    name_option: str | None,
    processes: int,
    reload: bool,
    line: int | None,
    asks: int | None,
    until: int | None,
    **options: Any,
) -> int:
    """Run jobs until stopped.

    The first SIGTERM, SIGHUP or SIGINT (Ctrl-C) stops claiming, lets handlers end within the grace
    time and hands the rest back; a second one stops at once.
    """
    logs.open_streams()
    if app and name_option:
        raise CommandError("either MODULE:APP or --app, not both")
    target = app or name_option or os.environ.get(APP_VARIABLE)
    if not target:
        raise CommandError(f"a worker needs your tasks: name MODULE:APP, or set ${APP_VARIABLE}")
    if not is_name(target):
        raise CommandError(f"{target!r} is not MODULE:APP, such as shop.tasks:app")
    if until is not None:
        end_with(until)
    if line is None and (processes > 1 or reload):
        return supervise(target, options, processes, reload)
    return work(target, options, line, asks)


def work(target: str, options: Options, line: int | None, asks: int | None = None) -> int:
    """Be a worker, on its own or on a supervisor's line."""
    from ..worker.supervised import run_alone, run_on_line

    found = load(target)
    settings = settings_of(options)
    logs.begin(options["log_level"], options["json_logs"])
    worker = found.worker(**settings)
    code = run_alone(worker) if line is None else run_on_line(worker, line, asks)
    if code == AT_ONCE or left_behind():
        # They must not keep the process, nor meet an interpreter that is being taken down.
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(code)
    try:
        found.close()
    except TowlineError as error:
        logging.getLogger("towline.worker").warning("could not close the database: %s", error)
    return code


def left_behind() -> bool:
    """Whether handlers still run, though the worker has stopped. Free slots end in a moment."""
    deadline = time.monotonic() + MOMENT
    for thread in threading.enumerate():
        if _SLOT.fullmatch(thread.name):
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                return True
    return False


def supervise(target: str, options: Options, processes: int, reload: bool) -> int:
    """Run workers as children; this process imports none of the application's code."""
    from ..worker.supervisor import Supervisor

    watch = watching() if reload else None
    logs.begin(options["log_level"], options["json_logs"])
    health = crew_health(options.pop("health", None), processes)

    def command(number: int, line: int) -> list[str]:
        own = [f"--line={line}", *words_of(options, number)]
        return [sys.executable, "-m", "towline", "worker", target, *own]

    return Supervisor(command, processes, options["grace"], watch, health).run()


def crew_health(address: str | None, processes: int) -> CrewHealth | None:
    """What answers for all children, at an address, to systemd, or both; None for neither."""
    from ..worker.health.systemd import Notices

    notices = Notices.asked_for(os.environ)
    if address is None and notices is None:
        return None
    from ..worker.health.crew import CrewHealth

    health = CrewHealth(processes)
    if address is not None:
        from ..worker.health.port import Port

        Port(address, health)
    if notices is not None:
        threading.Thread(target=health.notify, args=(notices,), daemon=True).start()
    return health


def watching() -> Callable[[Callable[[], None]], None]:
    """What calls back when a Python file below the current directory has changed."""
    try:
        import watchfiles
    except ImportError:
        raise CommandError("--reload needs watchfiles: pip install -e '.[reload]'") from None

    def watch(changed: Callable[[], None]) -> None:
        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        for _ in watchfiles.watch(
            ".", watch_filter=watchfiles.PythonFilter(), raise_interrupt=False
        ):
            changed()

    return watch
