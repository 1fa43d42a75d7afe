"""The metrics there are: name, kind, labels, and what they say. The page and `deploy/` are checked
against this list."""

from __future__ import annotations

from msgspec import Struct

SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
    300.0, 1800.0, 3600.0,
)  # fmt: skip


class Metric(Struct, frozen=True):
    """One of them. The name of a counter ends with _total only where it is scraped."""

    name: str
    kind: str  # counter, gauge, histogram
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which it can be asked for."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (f"{self.name}_total" if self.kind == "counter" else self.name,)


def _counter(name: str, labels: str, help: str) -> Metric:
    return Metric(name, "counter", tuple(labels.split()), help)


def _gauge(name: str, labels: str, help: str) -> Metric:
    return Metric(name, "gauge", tuple(labels.split()), help)


def _histogram(name: str, labels: str, help: str) -> Metric:
    return Metric(name, "histogram", tuple(labels.split()), help)


ENQUEUED = _counter("towline_jobs_enqueued", "queue task created", "Calls that were stored here.")
ATTEMPTS = _counter("towline_attempts", "queue task outcome", "Attempts that ended here.")
REFUSED = _counter(
    "towline_attempts_refused", "queue task", "Ends that were refused: another had the job."
)
RUN = _histogram("towline_attempt_seconds", "queue task", "How long handlers ran.")
WAIT = _histogram(
    "towline_wait_seconds", "queue task", "How long jobs could have run before they did."
)
OPERATION = _histogram("towline_operation_seconds", "operation", "How long operations took.")
OPERATION_ERRORS = _counter(
    "towline_operation_errors", "operation error_type", "Operations that raised."
)
SLOTS = _gauge("towline_slots", "state", "Slots of the workers of this process: busy, free.")
LEASES_LOST = _counter("towline_leases_lost", "", "Times a worker of this process lost its lease.")
DROPPED = _counter("towline_events_dropped", "", "Events that did not fit into the line.")
BUILD = _gauge("towline_build_info", "version engine", "1, with the version and the engine.")

UP = _gauge("towline_up", "", "Whether the database answered the last look at it.")
QUEUE_JOBS = _gauge("towline_queue_jobs", "queue state", "Jobs there are.")
QUEUE_AGE = _gauge(
    "towline_queue_age_seconds", "queue", "For how long the oldest pending job could have run."
)
QUEUE_PAUSED = _gauge("towline_queue_paused", "queue", "1 for a queue that is paused.")
WORKERS = _gauge("towline_workers", "", "Workers that are registered, with a lease.")
ENDED = _counter("towline_jobs_ended", "queue task outcome", "Jobs that ended, in all workers.")
JOB_RUN = _histogram(
    "towline_job_run_seconds", "queue task", "How long last attempts ran, in all workers."
)

PROCESS = (
    ENQUEUED, ATTEMPTS, REFUSED, RUN, WAIT, OPERATION, OPERATION_ERRORS, SLOTS, LEASES_LOST,
    DROPPED,
)  # fmt: skip
CLUSTER = (UP, QUEUE_JOBS, QUEUE_AGE, QUEUE_PAUSED, WORKERS, ENDED, JOB_RUN)
METRICS = (*PROCESS, BUILD, *CLUSTER)
