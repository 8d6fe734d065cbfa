"""`manage.py save_window`: writes what was known around an incident, or a job's newest data, for `python -m rca`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import BaseCommand, CommandError

from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from console.incidents.pictures.export import SECONDS, incident_window, job_window, question_of
from ingest.models import Job
from ingest.window import Window, save_window


class Command(BaseCommand):
    help = "Save a window of traces, to be diagnosed anywhere with: python -m rca PATH"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("subject", metavar="incident-or-job", help="an incident's number, a job's name or team/job")
        parser.add_argument("path", type=Path, metavar="PATH", help="the file to write, .npz")
        help_ = f"how much time it covers (an incident: as its diagnosis; else {SECONDS})"
        parser.add_argument("--seconds", type=int, help=help_)

    def handle(self, *args: Any, subject: str, path: Path, seconds: int | None, **options: Any) -> None:
        try:
            window, asked = _window(subject, seconds)
            save_window(path, window, asked)
        except ObjectDoesNotExist as missing:
            raise CommandError(f"There is no incident or job {subject}, or nothing was heard of it.") from missing
        except (BadAct, OSError) as error:
            raise CommandError(str(error)) from error
        took_s = round((window.end_ns - window.start_ns) / 1e9)
        rows = sum(len(window.rows(table)) for table in window.tables)
        self.stdout.write(f"{path}: {rows} rows of {window.job}, {took_s} s. Diagnose it with: python -m rca {path}")


def _window(subject: str, seconds: int | None) -> tuple[Window, dict[str, Any]]:
    if subject.isdecimal():
        incident = Incident.objects.get(pk=int(subject))
        return incident_window(incident, seconds), question_of(incident)
    team, _, name = subject.rpartition("/")
    jobs = Job.objects.filter(name=name, team__name=team) if team else Job.objects.filter(name=subject)
    if len(jobs) > 1:
        raise BadAct(f"Several teams have a job {subject}: say team/{subject}.")
    return job_window(jobs.get(), SECONDS if seconds is None else seconds), {}
