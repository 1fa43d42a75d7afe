"""Jobs in Django's admin: to look at, and to retry, cancel or run now by who may.

Lists are read by `app.jobs`, which walks an index for every filter and counts no further than it is
asked to; the admin's own way would count and sort all jobs that there are.
"""

# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import EmptyPage, Paginator
from django.db import transaction
from django.utils.html import format_html, format_html_join

from ...app import handles
from ...app.filters import parse_id
from ...app.shown import Mask, arguments_text, output_text
from ...errors import NotFound, TowlineError
from ...model import State
from .declaring import declare_all
from .models import Job
from .project import ProjectApp, main_app

if TYPE_CHECKING:
    from django.http import HttpRequest

COUNTED = 10_000  # jobs that the pager leads to; a filter leads to the others
AHEAD = 1000  # jobs that it knows of behind the page that is shown
ROUNDS = 5  # pages of jobs that are looked through for those which fit a filter
MOST_REASONS = 3


class Choice(admin.SimpleListFilter):
    """A filter that `app.jobs` has; what it chooses is read there, not in a queryset."""

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset


class StateFilter(Choice):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(state), str(state)) for state in State]


class QueueFilter(Choice):
    title = parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        app = main_app()
        names = {task.queue for task in app.registry.values()} | app.queues
        return [(name, name) for name in sorted(names)]


class TaskFilter(Choice):
    title = parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(main_app().registry)]


class JobList(ChangeList):
    """A page of jobs, newest first."""

    def get_results(self, request: HttpRequest) -> None:
        app = main_app()
        number: int = self.page_num
        where = {spec.parameter_name: spec.value() for spec in self.filter_specs if spec.value()}
        if word := self.query.strip():
            id = parse_id(word)
            where |= {"label": word} if id is None else {"ids": [id]}
        try:
            found = self._found(app, where, number * self.list_per_page)
        except TowlineError as error:
            raise IncorrectLookupParameters(str(error)) from error
        self.paginator = Paginator(found, self.list_per_page)
        try:
            page = self.paginator.page(number).object_list
        except EmptyPage:
            raise IncorrectLookupParameters from None
        self.result_list = [_row(job) for job in page]
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = self.can_show_all = False
        self.show_admin_actions = bool(self.result_list)
        self.multi_page = len(found) > self.list_per_page

    def _found(self, app: ProjectApp, where: dict[str, Any], shown: int) -> list[handles.Job[Any]]:
        """Jobs up to the end of the page, and some more: as far as the pager looks."""
        found: list[handles.Job[Any]] = []
        cursor: str | None = None
        for _ in range(ROUNDS):
            most = min(shown + AHEAD, COUNTED) - len(found)
            page = app.jobs(limit=max(most, 1), cursor=cursor, on=app.connection, **where)
            found += page
            cursor = page.cursor
            if cursor is None or len(found) >= shown:
                break
        return found


def _row(job: handles.Job[Any]) -> Job:
    """A job for a list, its error without what is secret."""
    row = Job.of(job)
    row.error = Mask(job)(job.error)
    return row


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Read-only, with three actions, each behind a permission of its own."""

    list_display = ("id", "task", "state", "queue", "attempt", "created_at", "ended_at", "problem")
    list_filter = (StateFilter, QueueFilter, TaskFilter)
    search_fields = ("id",)
    search_help_text = "An id, or a whole label"
    sortable_by = ()
    actions = ("retry", "cancel", "run_now")
    actions_selection_counter = False  # all of a filter at once is `towline retry --state failed`
    readonly_fields = ("why", "arguments", "output", "attempts")

    # ---- who may

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("towline.retry_job"))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("towline.cancel_job"))

    def has_run_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("towline.run_job"))

    # ---- looking

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[JobList]:
        _app()
        return JobList

    def get_search_results(self, request: HttpRequest, queryset: Any, word: str) -> Any:
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, *_: Any) -> Job | None:
        app = _app()
        id = parse_id(str(object_id))
        try:
            return None if id is None else _row(app.job(id, on=app.connection))
        except NotFound:
            return None

    @admin.display(description="error")
    def problem(self, job: Job) -> str:
        lines = (job.error or "").strip().splitlines()
        return lines[-1][:100] if lines else ""

    def why(self, job: Job) -> str:
        app = main_app()
        return app.why(job.pk, on=app.connection)

    def arguments(self, job: Job) -> str:
        app = main_app()
        return arguments_text(app, app.job(job.pk, on=app.connection))

    def output(self, job: Job) -> str:
        app = main_app()
        return output_text(app, app.job(job.pk, on=app.connection)) or ""

    def attempts(self, job: Job) -> str:
        app = main_app()
        mask = Mask(app.job(job.pk, on=app.connection))
        rows = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><pre>{}</pre></td></tr>",
            (
                (a.number, a.outcome or "running", a.started_at or "", a.ended_at or "",
                 a.worker or "", mask(a.error) or "")
                for a in app.attempts(job.pk, on=app.connection)
            ),
        )  # fmt: skip
        return str(format_html("<table>{}</table>", rows))

    # ---- acting

    def response_action(self, request: HttpRequest, queryset: Any, **where: Any) -> Any:
        """Only what was ticked: a list is no queryset that could stand for all of it."""
        request.POST = request.POST.copy()
        request.POST["select_across"] = "0"
        return super().response_action(request, queryset, **where)

    @admin.action(description="Retry selected jobs", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: Any) -> None:
        self._act(request, "retry", "retried")

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: Any) -> None:
        self._act(request, "cancel", "cancelled")

    @admin.action(description="Run selected jobs now", permissions=["run"])
    def run_now(self, request: HttpRequest, queryset: Any) -> None:
        self._act(request, "run_now", "told to run now")

    def _act(self, request: HttpRequest, name: str, done: str) -> None:
        app = main_app()
        ids = filter(None, map(parse_id, request.POST.getlist("_selected_action")))
        number, refused = 0, []
        with transaction.atomic(using=app.database):
            for id in ids:
                try:
                    getattr(app, name)(id, by=request.user.get_username(), on=app.connection)
                    number += 1
                except TowlineError as error:
                    refused.append(str(error))
        if number:
            self.message_user(request, f"{number} job{'s' * (number != 1)} {done}.")
        for reason in refused[:MOST_REASONS]:
            self.message_user(request, reason, messages.WARNING)
        if more := refused[MOST_REASONS:]:
            self.message_user(request, f"{len(more)} more were refused.", messages.WARNING)


def _app() -> ProjectApp:
    """With every task that it has: what is secret in arguments, a task says."""
    app = main_app()
    declare_all(app)
    return app
