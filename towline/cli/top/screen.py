"""The screen of top: tables that are filled again at each look, and what its keys do.

Reads and actions run in threads; what comes of them is posted to the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Sparkline, Static

from ...app import Towline
from ...app.answers import living
from ...errors import TowlineError
from ...model import State
from ...naming import EVERY
from ...text import plain
from .. import output
from ..control import who
from ..errors import kind_of
from ..lists import progress_of
from .look import Look, look_at

COLUMNS = {
    "queues": ("queue", "", "pending", "running", "scheduled", "blocked", "failed"),
    "running": ("job", "task", "queue", "worker", "for", "progress"),
    "workers": ("worker", "host/pid", "busy", "seen", "queues"),
    "failures": ("number", "task", "error", "last", "newest job"),
}
SHOWN = (State.PENDING, State.RUNNING, State.SCHEDULED, State.BLOCKED, State.FAILED)


class Looked(Message):
    """A look has been taken."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look


class Told(Message):
    """What came of an action, or why there was nothing to see."""

    def __init__(self, text: str, *, bad: bool = False) -> None:
        super().__init__()
        self.text, self.bad = text, bad


class Ask(ModalScreen[bool]):
    """A question that y answers with yes, and n or escape with no."""

    CSS = """
    Ask { align: center middle; }
    Ask Static { width: auto; max-width: 80%; padding: 1 2; border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{plain(self.question)}  [y/n]", markup=False)

    def action_answer(self, yes: bool) -> None:
        _ = self.dismiss(yes)  # done when this has ended


class Top(App[None]):
    """All of it on one screen."""

    CSS = """
    #summary { height: 1; padding: 0 1; }
    Horizontal { height: 1fr; }
    #rates { height: 4; }
    Sparkline { height: 4; width: 1fr; border: round $surface-lighten-2; }
    #failed > .sparkline--max-color, #failed > .sparkline--min-color { color: $error; }
    DataTable { height: 1fr; width: 1fr; border: round $surface-lighten-2; }
    DataTable:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", "pause or resume queue"),
        Binding("c", "cancel", "cancel job"),
        Binding("r", "retry", "retry what failed"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),  # as every other command ends
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, towline: Towline, every: float) -> None:
        super().__init__()
        self.towline = towline
        self.every = every
        self.seen: Look | None = None
        self._looking = False

    def compose(self) -> ComposeResult:
        yield Static("", id="summary", markup=False)
        with Horizontal(id="rates"):
            yield rate("ended", "ended, by the minute")
            yield rate("failed", "failed")
        with Horizontal():
            yield table("queues", "queues (p)")
            yield table("failures", "failures of the last hour (r)")
        yield table("running", "running jobs (c)")
        yield table("workers", "workers")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#queues", DataTable).focus()
        self.set_interval(self.every, self.look)
        self.look()

    # ---- looking

    def look(self) -> None:
        """Take a look, unless the last one still goes on."""
        if not self._looking:
            self._looking = True
            self.run_worker(self._look, thread=True)

    def _look(self) -> None:
        try:
            self.post_message(Looked(look_at(self.towline)))
        except TowlineError as error:
            self.post_message(Told(str(error), bad=True))
        finally:
            self._looking = False

    def on_looked(self, event: Looked) -> None:
        self.seen = look = event.look
        self.query_one("#summary", Static).update(summary(look))
        self.query_one("#ended", Sparkline).data = look.ended
        self.query_one("#failed", Sparkline).data = look.failed
        self.fill("queues", queue_rows(look))
        self.fill("running", running_rows(look))
        self.fill("workers", worker_rows(look))
        self.fill("failures", failure_rows(look))

    def on_told(self, event: Told) -> None:
        text = plain(event.text)
        self.notify(text, severity="error" if event.bad else "information", markup=False)

    def fill(self, name: str, rows: Iterable[tuple[str, Sequence[object]]]) -> None:
        """Show other rows; who stood on one of them stands there still."""
        shown = self.query_one(f"#{name}", DataTable)
        stood = self.chosen(name)
        shown.clear()
        for key, cells in rows:
            shown.add_row(*(cell(value) for value in cells), key=key)
        if stood is not None and stood in shown.rows:
            shown.move_cursor(row=shown.get_row_index(stood))

    def chosen(self, name: str) -> str | None:
        """The key of the row on which the cursor of a table stands."""
        shown = self.query_one(f"#{name}", DataTable)
        if not shown.row_count:
            return None
        return shown.coordinate_to_cell_key(shown.cursor_coordinate).row_key.value

    # ---- acting

    def action_pause(self) -> None:
        queue = self.chosen("queues")
        if queue is None or self.seen is None:
            return
        if queue in self.seen.paused:
            self.act(partial(self.towline.resume, queue, by=who()), f"queue {queue} goes on")
        else:
            self.act(partial(self.towline.pause, queue, by=who()), f"queue {queue} is paused")

    def action_cancel(self) -> None:
        job = self.chosen("running")
        if job is not None:
            cancel = partial(self.towline.cancel, int(job), by=who())
            self.ask(f"Cancel job {job}?", cancel, f"job {job} is cancelled")

    def action_retry(self) -> None:
        key = self.chosen("failures")
        if key is None or self.seen is None:
            return
        task = self.seen.failures[int(key)]["task"]
        retry = partial(self.towline.retry_many, task=task, state=State.FAILED, by=who())
        done = f"the failed jobs of task {task} are pending again"
        self.ask(f"Retry every failed job of task {task}?", retry, done)

    def ask(self, question: str, action: Callable[[], object], done: str) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self.act(action, done)

        _ = self.push_screen(Ask(question), answered)

    def act(self, action: Callable[[], object], done: str) -> None:
        """Do it in a thread, say what came of it, and look again."""

        def run() -> None:
            try:
                action()
                self.post_message(Told(done))
            except TowlineError as error:
                self.post_message(Told(str(error), bad=True))
            self._look()

        self.run_worker(run, thread=True)


def rate(name: str, title: str) -> Sparkline:
    shown = Sparkline([], id=name)
    shown.border_title = title
    return shown


def table(name: str, title: str) -> DataTable[Text]:
    shown: DataTable[Text] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
    shown.add_columns(*COLUMNS[name])
    shown.border_title = title
    return shown


def cell(value: object) -> Text:
    """Text of others as text, whatever is in it."""
    text = plain("" if value is None else str(value), lines=False)
    return Text(text, style=output.STYLES.get(text, ""))


def summary(look: Look) -> str:
    """How it goes, in a line."""
    alive = living(look.workers, look.now)
    workers = len(alive)
    busy = sum(worker.busy for worker in alive)
    slots = sum(worker.concurrency for worker in alive)
    return (
        f"{look.now.astimezone():%H:%M:%S}  {workers} worker{'s' * (workers != 1)}, "
        f"{busy} of {slots} slots busy  last full minute {look.ended[-2]}  "
        f"last hour {sum(look.ended)} ended, {sum(look.failed)} failed"
    )


def queue_rows(look: Look) -> Iterable[tuple[str, Sequence[object]]]:
    for queue, counts in look.queues.items():
        paused = "" if {queue, EVERY}.isdisjoint(look.paused) else "paused"
        yield queue, (queue, paused, *(counts.get(state, "") for state in SHOWN))


def running_rows(look: Look) -> Iterable[tuple[str, Sequence[object]]]:
    for job in look.running:
        lasted = output.took(job.started_at, look.now)
        yield str(job.id), (job.id, job.task, job.queue, job.worker, lasted, progress_of(job))


def worker_rows(look: Look) -> Iterable[tuple[str, Sequence[object]]]:
    for worker in look.workers:
        busy = f"{worker.busy}/{worker.concurrency}"
        seen = output.distance(worker.seen_at, look.now)
        place = f"{worker.host}/{worker.pid}"
        yield str(worker.id), (worker.name, place, busy, seen, ", ".join(worker.queues))


def failure_rows(look: Look) -> Iterable[tuple[str, Sequence[Any]]]:
    for place, group in enumerate(look.failures):
        last = output.distance(datetime.fromisoformat(group["last_at"]), look.now)
        yield str(place), (group["number"], group["task"], kind_of(group), last, group["job_id"])
