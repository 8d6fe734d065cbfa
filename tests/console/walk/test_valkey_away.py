"""Every address that is read, while Valkey is away: what the database knows is still told."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache

from console.dashboard.kept import AWAY
from tests.console.walk.expected import EXPECTED
from tests.console.walk.test_walk import address_of, world
from tests.console.walk.world import World, signed_in

__all__ = ["world"]  # fixture
pytestmark = pytest.mark.django_db
NOBODY_LISTENS = "redis://127.0.0.1:9/0"


@pytest.fixture
def valkey_away(settings: Any) -> None:
    cache.clear()
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": NOBODY_LISTENS}}


def test_every_address_that_is_read_answers_as_ever(world: World, valkey_away: None) -> None:
    ada = signed_in("ada", world.team)
    with pytest.raises(AWAY):
        cache.get("anything")
    looks = [(route, act) for route, listed in EXPECTED.items() for act in listed if act.method == "GET"]
    wrong = []
    for route, act in looks:
        answer = ada.get(address_of(world, route) + act.query)
        if answer.status_code not in act.answers:
            wrong.append((route, answer.status_code))
    assert not wrong, "\n".join(map(str, wrong))
