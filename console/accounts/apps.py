"""The Django app of people and tokens: its audit hears of every timeline entry, in the transaction that writes it."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import import_string


class AccountsConfig(AppConfig):
    name = "console.accounts"

    def ready(self) -> None:
        """By name: models may be imported only once all apps are known, which is now."""
        listen_in = import_string("console.incidents.record.tell_in_transaction")
        listen_in(import_string("console.accounts.audit_timeline.note_entry"))
