"""The Django app: its label `towline` is that of its migrations and permissions."""

from __future__ import annotations

from django.apps import AppConfig


class TowlineConfig(AppConfig):
    """What INSTALLED_APPS finds here."""

    name = "towline.integrations.django"
    label = "towline"
    verbose_name = "Towline"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.core import checks

        from .checks import check_entries, check_tables
        from .project import let_go_of_test_databases

        let_go_of_test_databases()
        checks.register(check_entries)
        checks.register(check_tables, checks.Tags.database)
