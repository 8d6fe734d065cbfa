"""Bundles: dumps of a job that nobody traced, taken in as a zip file, read by a worker under limits, kept for a day.

The file is read by a process of its own (`python -m rca bundle --sandboxed`), which may take only so much memory and time, so
that a hostile archive ends that process and leaves a reason. What it said is kept, the file is not.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from console.celery import app
from console.dumps.models import Bundle
from console.dumps.reading import storable
from console.dumps.uploads import BUNDLE_BYTES_MAX
from console.incidents.lifecycle import BadAct, TooMany
from console.incidents.retention import alone
from console.operations.alive import read_alive
from ingest.models import Team
from rca.bundle.command import PROGRESS
from rca.plain import printable

log = logging.getLogger(__name__)
KEPT: Final = timedelta(days=1)
WAITING_MAX: Final = 4  # of a team, not read yet
PER_DAY_MAX: Final = 100
FREE_BYTES_MIN: Final = 2**30
READ_SECONDS: Final = 180.0
LOST_AFTER: Final = timedelta(seconds=READ_SECONDS + 120)
AGAIN_SECONDS: Final = 5
FORGOTTEN_AFTER: Final = timedelta(minutes=2)
"""A worker that was asked so long ago, and is not asked again by itself, was never reached."""
ANSWER_BYTES_MAX: Final = 64 * 2**20
REASON_CHARS: Final = 500
TASK: Final = "console.dumps.tasks.read_bundle"


def bring(team: Team, name: str, brought_by: str, chunks: Iterable[bytes]) -> Bundle:
    """Keep a zip file and have it read. Raises BadAct, TooMany."""
    name = printable(Path(name or "bundle.zip").name[:200])
    mine = Bundle.objects.filter(team=team)
    if mine.filter(state__in=(Bundle.State.WAITING, Bundle.State.READING)).count() >= WAITING_MAX:
        raise TooMany(f"At most {WAITING_MAX} bundles of a team are read at once.")
    if mine.count() >= PER_DAY_MAX:
        raise TooMany(f"At most {PER_DAY_MAX} bundles of a team are taken in a day.")
    key = secrets.token_hex(16)
    size = _keep(_path(key), chunks)
    bundle = Bundle.objects.create(
        team=team, key=key, name=name, size_bytes=size, brought_by=brought_by[:150], brought_at=timezone.now()
    )
    transaction.on_commit(partial(_have_read, key))
    return bundle


def _have_read(key: str) -> None:
    """Ask a worker to read it; while the broker is away nobody is asked, and `tidy` finds what waits."""
    Bundle.objects.filter(key=key).update(asked_at=timezone.now())
    try:
        app.send_task(TASK, [key])
    except OperationalError as error:
        log.warning("broker away, bundle read later: %s", error)


def waits_for(bundle: Bundle) -> str:
    """Why nobody reads it yet, in a sentence for people; '' while it is being read, and while that is as usual."""
    if bundle.state != Bundle.State.WAITING:
        return ""
    notes = read_alive()
    if notes is None:
        return "Valkey does not answer, so no worker can be asked to read it. It is read when that is back."
    if not any(note.process == "worker" for note in notes):
        return "No worker runs, so nobody reads it: start one, or see its log. It is read by itself then."
    before = Bundle.objects.filter(state__in=(Bundle.State.WAITING, Bundle.State.READING), id__lt=bundle.pk).count()
    return f"{before} brought earlier {'is' if before == 1 else 'are'} read first." if before else ""


def _keep(path: Path, chunks: Iterable[bytes]) -> int:
    """Write the file; how large it is. Raises BadAct, and leaves nothing then."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if shutil.disk_usage(path.parent).free < FREE_BYTES_MIN + BUNDLE_BYTES_MAX:
        raise BadAct("There is no room on the server's disk for a bundle now.")
    size = 0
    try:
        with open(path, "xb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > BUNDLE_BYTES_MAX:
                    raise BadAct(f"A bundle has at most {BUNDLE_BYTES_MAX >> 20} MiB.")
                file.write(chunk)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return size


def read(key: str) -> bool:
    """Read a bundle that waits; False when something else that takes long is done now and it is to be asked for again."""
    waiting = Bundle.objects.filter(key=key, state=Bundle.State.WAITING)
    with alone() as is_mine:
        if is_mine and waiting.update(state=Bundle.State.READING, reading_since=timezone.now()):
            _read(Bundle.objects.get(key=key))
    if is_mine:
        return True
    now = timezone.now()  # of several who were asked for the same bundle one goes on asking
    others = Q(asked_at__gt=now - timedelta(seconds=AGAIN_SECONDS / 2))
    return not waiting.exclude(others).update(asked_at=now)


def _read(bundle: Bundle) -> None:
    path = _path(bundle.key)
    try:
        said, refused = _run(path, lambda share: _tell(bundle, share))
        answer = json.loads(storable(said.decode())) if not refused else None
    except (OSError, ValueError) as error:
        answer, refused = None, f"it cannot be read here ({type(error).__name__})"
    finally:
        path.unlink(missing_ok=True)
    reason = printable(refused.replace(str(path), bundle.name)[:REASON_CHARS])
    done = (
        {"state": Bundle.State.REFUSED, "refused": reason} if reason else {"state": Bundle.State.DONE, "answer": answer}
    )
    _still_read(bundle).update(progress=1.0, **done)


def _still_read(bundle: Bundle) -> QuerySet[Bundle]:
    """The bundle, unless it was called lost meanwhile."""
    return Bundle.objects.filter(pk=bundle.pk, state=Bundle.State.READING, reading_since=bundle.reading_since)


def _run(path: Path, told: Any) -> tuple[bytes, str]:
    """(what the reading process printed, why it refused)."""
    argv = [sys.executable, "-m", "rca", "bundle", "--json", "--sandboxed", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)}
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as reader:  # fmt: skip
        assert reader.stdout is not None and reader.stderr is not None
        out: list[bytes] = []
        taking = threading.Thread(target=lambda: out.append(reader.stdout.read(ANSWER_BYTES_MAX + 1)))  # type: ignore[union-attr]
        ending = threading.Timer(READ_SECONDS, os.killpg, (reader.pid, signal.SIGKILL))
        taking.start()
        ending.start()
        try:
            last = _followed(reader.stderr, told)
            taking.join()
        finally:
            ending.cancel()
            _end(reader)
    if len(out[0]) > ANSWER_BYTES_MAX:
        return b"", "what is in it is more than can be shown"
    if reader.returncode == 0:
        return out[0], ""
    return b"", last if reader.returncode == 2 and last else "reading it takes more memory or time than it may"


def _end(reader: subprocess.Popen[bytes]) -> None:
    """Nothing of it stays, whatever it started."""
    if reader.poll() is None:
        try:
            reader.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(reader.pid, signal.SIGKILL)


def _followed(lines: Any, told: Any) -> str:
    """Pass on what it tells of its progress; the last line that is something else."""
    last = ""
    for line in lines:
        text = line[:2000].decode("utf-8", "replace").strip()
        if text.startswith(PROGRESS):
            told(float(text[len(PROGRESS) :]))
        elif text:
            last = text
    return last


def _tell(bundle: Bundle, share: float) -> None:
    """Note the progress, in steps that can be seen."""
    if share - bundle.progress >= 0.02:
        bundle.progress = share
        _still_read(bundle).update(progress=share)


def tidy() -> None:
    """Forget what is older than a day; say of what was interrupted that it was; read what nobody was asked to."""
    now = timezone.now()
    old = Bundle.objects.filter(brought_at__lt=now - KEPT)
    for key in old.values_list("key", flat=True):
        _path(key).unlink(missing_ok=True)
    old.delete()
    lost = Bundle.objects.filter(state=Bundle.State.READING, reading_since__lt=now - LOST_AFTER)
    lost.update(state=Bundle.State.REFUSED, refused="Reading it was interrupted. Bring it again.", progress=1.0)
    forgotten = Q(asked_at=None) | Q(asked_at__lt=now - FORGOTTEN_AFTER)
    for key in Bundle.objects.filter(forgotten, state=Bundle.State.WAITING).values_list("key", flat=True):
        _have_read(key)


def _path(key: str) -> Path:
    return Path(settings.BUNDLES_FOLDER) / f"{key}.zip"
