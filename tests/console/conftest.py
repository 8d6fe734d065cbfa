"""Three personas, a stranger of another team, and a job to have incidents in."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import Membership, Role
from ingest.models import Attempt, Job, Team
from tests.servers import TestServers


@dataclass(frozen=True)
class Persona:
    """A user and a browser that is signed in as them."""

    user: User
    browser: APIClient

    @property
    def name(self) -> str:
        return self.user.get_username()


def make_persona(name: str, team: Team, role: Role) -> Persona:
    user = User.objects.create(username=name)
    Membership.objects.create(user=user, team=team, role=role)
    browser = APIClient()
    browser.force_login(user)
    return Persona(user, browser)


@pytest.fixture(autouse=True)
def no_guesses(valkey: TestServers) -> None:
    """All tests come from one address: what earlier ones guessed is forgotten."""
    cache.clear()


@pytest.fixture
def team(db: None) -> Team:
    return Team.objects.create(name="training")


@pytest.fixture
def responder(team: Team) -> Persona:
    return make_persona("rita", team, Role.RESPONDER)


@pytest.fixture
def viewer(team: Team) -> Persona:
    return make_persona("vera", team, Role.VIEWER)


@pytest.fixture
def admin(team: Team) -> Persona:
    return make_persona("ada", team, Role.ADMIN)


@pytest.fixture
def stranger(db: None) -> Persona:
    """A responder, but of another team."""
    return make_persona("sten", Team.objects.create(name="others"), Role.RESPONDER)


@pytest.fixture
def attempt(team: Team) -> Attempt:
    now = timezone.now()
    job = Job.objects.create(team=team, name="llama-70b")
    return Attempt.objects.create(job=job, number=0, world_size=8, started_at=now, last_received_at=now)
