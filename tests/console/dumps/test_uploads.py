"""Who may send a bundle's body at all, and for how long a body may take to come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as site
from django.contrib.auth.models import User

from console.accounts.models import Role
from console.accounts.secrets import make_api_token
from console.dumps import uploads
from ingest.door import gate
from ingest.models import Team
from tests.console.conftest import Persona
from tests.console.dumps.test_bundles import SAID, never, through

LENGTH = (SAID, b"131072")


async def reads(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the whole body, then asks whether the sender is still there."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await receive()


def test_a_bundle_passes_the_gate_in_front_of_every_process() -> None:
    """It knows of a body's path no more than how much may come and for how long."""
    most = uploads.BUNDLE_BYTES_MAX + uploads.FORM_BYTES_MAX
    assert gate.UPLOADS_PATH.decode() == uploads.PATH
    assert most <= gate._body_bytes_max(b"/api/v1/bundles?x=1") == gate.UPLOAD_BYTES_MAX
    assert gate._body_bytes_max(b"/api/v1/incidents") == gate.PAGE_BYTES_MAX
    assert uploads.BODY_SECONDS + most / uploads.BODY_BYTES_PER_SECOND_MIN < gate.UPLOAD_SECONDS


def cookie_of(who: Persona) -> tuple[bytes, bytes]:
    return b"cookie", f"{site.SESSION_COOKIE_NAME}={who.browser.cookies[site.SESSION_COOKIE_NAME].value}".encode()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_session", [True, False])
def test_who_may_not_diagnose_sends_no_body(viewer: Persona, responder: Persona, team: Team, is_session: bool) -> None:
    for who, role, status in ((viewer, Role.VIEWER, 403), (responder, Role.RESPONDER, 202)):
        if is_session:
            header = cookie_of(who)
        else:
            _, secret = make_api_token(team, role.value, role)
            header = (b"authorization", f"Token {secret}".encode())
        door = uploads.Uploads(never if status == 403 else _answers)
        assert async_to_sync(through)(door, LENGTH, header)[0] == status


async def _answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 202, "headers": []})


@pytest.mark.django_db(transaction=True)
def test_a_session_whose_user_is_gone_or_has_another_password_is_nobodys(responder: Persona) -> None:
    header, door = cookie_of(responder), uploads.Uploads(never)
    user = User.objects.get(pk=responder.user.pk)
    user.set_password("another")
    user.save()
    assert async_to_sync(through)(door, LENGTH, header)[0] == 401
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert async_to_sync(through)(door, LENGTH, header)[0] == 401


@pytest.mark.parametrize("path", ["/api/v1/bundles", "/api/v1/incidents"])
async def test_a_body_that_does_not_come_is_not_waited_for_and_gives_its_place_back(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_is_known", lambda headers: True)
    monkeypatch.setattr(uploads, "BODY_SECONDS", 0.0)
    monkeypatch.setattr(uploads, "BODY_BYTES_PER_SECOND_MIN", 2**40)
    door = uploads.Uploads(reads)
    for _ in range(uploads.AT_ONCE_MAX + 1):
        status, said, _ = await through(door, LENGTH, path=path)
        assert (status, said["code"]) == (408, "too_slow")
    monkeypatch.setattr(uploads, "BODY_SECONDS", 60.0)
    both = [asyncio.create_task(through(door, LENGTH, path=path, n_pieces=2)) for _ in range(uploads.AT_ONCE_MAX)]
    done, waiting = await asyncio.wait(both, timeout=0.2)
    for one in waiting:
        one.cancel()
    assert not done, "whoever has sent all is waited for as long as the answer takes"
