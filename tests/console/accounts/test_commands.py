"""bootstrap, signin_link, api_token and add_user, as an operator (and the supervisor) runs them."""

from __future__ import annotations

import io
import json
import re
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import Membership, SigninLink
from ingest.door.tokens import hash_token
from ingest.models import AgentToken, Team

pytestmark = pytest.mark.django_db


def test_bootstrap_makes_a_team_an_administrator_and_a_token_once() -> None:
    made = json.loads(run("bootstrap"))
    again = json.loads(run("bootstrap"))
    assert Membership.objects.get().role == "admin"
    assert (Team.objects.count(), User.objects.count(), AgentToken.objects.count()) == (1, 1, 1)
    assert hash_token(made["agent_token"]) == AgentToken.objects.get().token_sha256
    assert "agent_token" not in again


def test_bootstrap_keeps_the_token_in_a_file_only_we_can_read(tmp_path: Path) -> None:
    file = tmp_path / "below" / "agent_token"
    run("bootstrap", "--agent-token-file", str(file))
    first = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run("bootstrap", "--agent-token-file", str(file))
    assert file.read_text() == first


@pytest.mark.parametrize("loss", ["file", "database"])
def test_bootstrap_makes_a_new_token_when_one_side_of_it_is_lost(tmp_path: Path, loss: str) -> None:
    file = tmp_path / "agent_token"
    run("bootstrap", "--agent-token-file", str(file))
    if loss == "file":
        file.unlink()
    else:
        AgentToken.objects.all().delete()
    run("bootstrap", "--agent-token-file", str(file))
    assert AgentToken.objects.get().token_sha256 == hash_token(file.read_text().strip())


def test_a_signin_link_signs_in_once(client: Client) -> None:
    path = link()
    assert client.post(path).headers["Location"] == "/"
    assert client.get("/api/v1/session").json()["user"] == "admin"
    second = Client()
    assert (second.get(path).status_code, second.post(path).status_code) == (401, 401)
    assert second.get("/api/v1/session").status_code == 401


def test_looking_at_a_signin_link_does_not_use_it_up(client: Client) -> None:
    path, preview = link(), Client()
    assert "Sign in as admin" in preview.get(path).content.decode()
    assert preview.head(path).status_code in (200, 405)
    assert preview.get("/api/v1/session").status_code == 401
    assert client.post(path).status_code == 302


def test_a_page_elsewhere_cannot_sign_its_reader_in() -> None:
    path, careful = link(), Client(enforce_csrf_checks=True)
    assert careful.post(path).status_code == 403
    page = careful.get(path).content.decode()
    csrf = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert csrf is not None
    assert careful.post(path, {"csrfmiddlewaretoken": csrf[1]}).status_code == 302


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_signin_link_expires(client: Client, method: str) -> None:
    path = link()
    SigninLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert getattr(client, method)(path).status_code == 401


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_signin_link_of_somebody_who_left_is_worth_nothing(client: Client, method: str) -> None:
    path = link()
    User.objects.update(is_active=False)
    assert getattr(client, method)(path).status_code == 401


def test_the_links_secret_is_not_in_the_database() -> None:
    secret = link().rsplit("/", 1)[1]
    assert secret not in str(SigninLink.objects.values())


def test_an_api_token_works_until_it_is_revoked() -> None:
    run("bootstrap")
    secret = run("api_token", "--label", "sweep", "--role", "responder")
    script = APIClient(headers={"Authorization": f"Token {secret}"})
    assert script.get("/api/v1/session").json()["role"] == "responder"
    Team.objects.get().api_tokens.update(revoked_at=timezone.now())
    assert script.get("/api/v1/session").status_code == 401


def test_an_api_token_expires() -> None:
    run("bootstrap")
    secret = run("api_token", "--label", "sweep", "--days", "1")
    Team.objects.get().api_tokens.update(expires_at=timezone.now())
    assert APIClient(headers={"Authorization": f"Token {secret}"}).get("/api/v1/session").status_code == 401


def test_add_team_makes_a_team_once_for_people_to_be_in() -> None:
    for _ in range(2):
        run("add_team", "serving")
    run("add_user", "rita", "--team", "serving")
    assert Membership.objects.get().team == Team.objects.get(name="serving")


def test_add_user_gives_a_role_and_changes_it() -> None:
    run("bootstrap")
    run("add_user", "rita", "--role", "viewer")
    run("add_user", "rita", "--role", "responder")
    assert Membership.objects.get(user__username="rita").role == "responder"


@pytest.mark.parametrize(
    "command", [("signin_link",), ("api_token", "--label", "x"), ("add_user", "rita")], ids=lambda words: words[0]
)
def test_before_bootstrap_the_commands_say_what_to_do(command: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="bootstrap"):
        run(*command)


def link() -> str:
    run("bootstrap")
    found = run("signin_link", "--base-url", "http://console.example/")
    assert found.startswith("http://console.example/signin/")
    return found.removeprefix("http://console.example")


def run(command: str, *arguments: Any) -> str:
    """What the command printed last."""
    out = io.StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue().strip().splitlines()[-1]


def test_a_team_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(CommandError, match=r"nor any other yet. Run `manage.py bootstrap` first"):
        run("add_user", "bob", "--team", "demo")
    run("bootstrap")
    with pytest.raises(CommandError, match=r"The only team: default\. `manage.py add_team demo` makes it"):
        run("add_user", "bob", "--team", "demo")
    run("add_team", "vision")
    with pytest.raises(CommandError, match="Teams: default, vision"):
        run("api_token", "--label", "x", "--team", "demo")
