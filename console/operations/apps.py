"""The Django app that keeps the processes in view: doors, start-up checks, `manage.py doctor`."""

from __future__ import annotations

import logging

from django.apps import AppConfig
from prometheus_client import REGISTRY

from console.operations.checks import register_checks
from console.operations.listener import listen
from console.operations.stack import StackCollector
from console.operations.startup import say_problems
from ingest import process


class OperationsConfig(AppConfig):
    name = "console.operations"

    def ready(self) -> None:
        """Web and ingest open their doors here; worker and beat when Celery says that they are up."""
        logging.captureWarnings(True)  # a log of objects has no lines of plain text
        register_checks()
        if process.NAME == "web":
            REGISTRY.register(StackCollector())
        if process.NAME in ("web", "ingest"):
            listen()
            say_problems()
