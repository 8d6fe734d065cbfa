"""The Django app of tickets: it hears of every timeline entry, in the transaction that writes it."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import import_string


class TicketsConfig(AppConfig):
    name = "console.tickets"

    def ready(self) -> None:
        """By name: models may be imported only once all apps are known, which is now."""
        listen_in = import_string("console.incidents.record.tell_in_transaction")
        listen_in(import_string("console.tickets.promises.promise"))
