"""Building an evidence bundle: asked for by a person, built by a worker, kept for some days, bounded and counted.

The file is written beside its place and moved there when it is whole, so that nobody downloads half of one. While one is built
for an incident, asking again is the same request. No upkeep is done meanwhile: the
worker's other process is for dumps and stages.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import zipfile
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from console.celery import app
from console.evidence.models import EvidenceBundle
from console.evidence.parts import PARTS, README, Archive
from console.incidents.lifecycle import BadAct, TooMany
from console.incidents.models import Incident
from console.incidents.read import newest_revision
from console.incidents.retention import alone
from console.incidents.rows import iso

log = logging.getLogger(__name__)
KEPT: Final = timedelta(days=7)
PER_INCIDENT_MAX: Final = 5
PER_TEAM_WAITING_MAX: Final = 4
FREE_BYTES_MIN: Final = 2**30
FILE_BYTES_MAX: Final = 2**30
BUILD_SECONDS: Final = 300
AGAIN_SECONDS: Final = 5
LOST_AFTER: Final = timedelta(seconds=BUILD_SECONDS + 120)
FORGOTTEN_AFTER: Final = timedelta(minutes=2)
TASK: Final = "console.evidence.tasks.build_evidence"
UNFINISHED: Final = (EvidenceBundle.State.WAITING, EvidenceBundle.State.BUILDING)


def want(incident: Incident, by: str) -> EvidenceBundle:
    """The bundle that is being built, else a new one. Raises BadAct, TooMany."""
    unfinished = incident.evidence_bundles.filter(state__in=UNFINISHED)
    if (found := unfinished.first()) is not None:
        return found
    if (
        EvidenceBundle.objects.filter(incident__team=incident.team_id, state__in=UNFINISHED).count()
        >= PER_TEAM_WAITING_MAX
    ):
        raise TooMany(f"At most {PER_TEAM_WAITING_MAX} bundles of a team are built at once.")
    _make_room(incident)
    try:
        with transaction.atomic():
            made: EvidenceBundle = EvidenceBundle.objects.create(
                incident=incident, key=secrets.token_hex(16), wanted_by=by[:150], wanted_at=timezone.now()
            )
            transaction.on_commit(partial(_have_built, made.pk))
    except IntegrityError:  # somebody else asked in the same moment
        made = unfinished.get()
    return made


def _make_room(incident: Incident) -> None:
    """Of an incident the newest few are kept."""
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    if shutil.disk_usage(folder()).free < FREE_BYTES_MIN + FILE_BYTES_MAX:
        raise BadAct("There is no room on the server's disk for a bundle now.")
    for old in incident.evidence_bundles.exclude(state__in=UNFINISHED).order_by("-id")[PER_INCIDENT_MAX - 1 :]:
        _drop(old)


def _have_built(pk: int) -> None:
    """Ask a worker to build it; while the broker is away nobody is asked, and `tidy` finds what waits."""
    EvidenceBundle.objects.filter(pk=pk).update(asked_at=timezone.now())
    try:
        app.send_task(TASK, [pk])
    except OperationalError as error:
        log.warning("broker away, evidence built later: %s", error)


def build(pk: int) -> bool:
    """Build one that waits; False when something else that takes long is done now and it is to be asked for again."""
    waiting = EvidenceBundle.objects.filter(pk=pk, state=EvidenceBundle.State.WAITING)
    with alone() as is_mine:
        if is_mine and waiting.update(state=EvidenceBundle.State.BUILDING, building_since=timezone.now()):
            _build(
                EvidenceBundle.objects.select_related("incident__job", "incident__attempt", "incident__team").get(pk=pk)
            )
    if is_mine:
        return True
    now = timezone.now()  # of several who were asked for the same one goes on asking
    others = Q(asked_at__gt=now - timedelta(seconds=AGAIN_SECONDS / 2))
    return not waiting.exclude(others).update(asked_at=now)


def _build(bundle: EvidenceBundle) -> None:
    half = path_of(bundle).with_suffix(".half")
    try:
        with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
            account = Archive(archive)
            _put_parts(bundle, account)
            _put_manifest(bundle, account)
        os.replace(half, path_of(bundle))
    except (Exception, SoftTimeLimitExceeded) as error:  # whoever asked must not wait for ever
        half.unlink(missing_ok=True)
        log.exception("evidence not built", extra={"incident": bundle.incident_id})
        why = (
            f"it took longer than {BUILD_SECONDS} s"
            if isinstance(error, SoftTimeLimitExceeded)
            else type(error).__name__
        )
        _finish(bundle, state=EvidenceBundle.State.FAILED, failed=f"The bundle could not be built: {why}.")
        return
    _finish(
        bundle, state=EvidenceBundle.State.DONE, progress=1.0, step="", size_bytes=path_of(bundle).stat().st_size,
        n_files=len(account.files), left_out=account.left_out, revision=_revision(bundle),
    )  # fmt: skip


def _put_parts(bundle: EvidenceBundle, account: Archive) -> None:
    done = 0.0
    for name, share, put in PARTS:
        _ours(bundle).update(step=name, progress=round(done, 3))
        try:
            put(account, bundle.incident)
        except BadAct as error:
            account.left_out.append(f"{name}: {error}")
        done += share


def _put_manifest(bundle: EvidenceBundle, account: Archive) -> None:
    at, number = iso(timezone.now()) or "", bundle.incident_id
    account.put("README.md", README.format(number=number, version=settings.VERSION, at=at))
    said = {"incident": number, "version": settings.VERSION, "made_at": at, "revision": _revision(bundle),
            "left_out": account.left_out, "files": account.files}  # fmt: skip
    account.zip.writestr("MANIFEST.json", json.dumps(said, ensure_ascii=False, indent=1))


def _revision(bundle: EvidenceBundle) -> int:
    newest = newest_revision(bundle.incident)
    return newest.number if newest is not None else 0


def _finish(bundle: EvidenceBundle, **changes: object) -> None:
    if not _ours(bundle).update(done_at=timezone.now(), **changes):
        path_of(bundle).unlink(missing_ok=True)  # it was called lost meanwhile


def _ours(bundle: EvidenceBundle) -> QuerySet[EvidenceBundle]:
    return EvidenceBundle.objects.filter(
        pk=bundle.pk, state=EvidenceBundle.State.BUILDING, building_since=bundle.building_since
    )


def tidy() -> None:
    """Forget what is old; say of what was interrupted that it was; build what nobody was asked to."""
    now = timezone.now()
    for old in EvidenceBundle.objects.filter(wanted_at__lt=now - KEPT):
        _drop(old)
    lost = EvidenceBundle.objects.filter(state=EvidenceBundle.State.BUILDING, building_since__lt=now - LOST_AFTER)
    lost.update(state=EvidenceBundle.State.FAILED, failed="Building it was interrupted. Ask again.", done_at=now)
    forgotten = Q(asked_at=None) | Q(asked_at__lt=now - FORGOTTEN_AFTER)
    for pk in EvidenceBundle.objects.filter(forgotten, state=EvidenceBundle.State.WAITING).values_list("pk", flat=True):
        _have_built(pk)


def _drop(bundle: EvidenceBundle) -> None:
    for path in (path_of(bundle), path_of(bundle).with_suffix(".half")):
        path.unlink(missing_ok=True)
    bundle.delete()


def folder() -> Path:
    return Path(settings.EVIDENCE_FOLDER)


def path_of(bundle: EvidenceBundle) -> Path:
    return folder() / f"{bundle.key}.zip"
