"""`manage.py reseal_secrets`: everything by the newest key, whatever it was sealed with, and what nobody can read is said."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from console.accounts.models import AuditEntry
from console.incidents.lifecycle import Actor
from console.incidents.models import ActorKind
from console.tickets.acts import change_destination, make_destination
from console.tickets.models import Destination
from console.tickets.sealing import is_newest, unseal
from ingest.models import Team

RITA = Actor("rita", ActorKind.USER)


@pytest.fixture
def destinations(db: None, settings: Any) -> list[Destination]:
    """Three, of one team: sealed by the secret key, by an older key, and by one that is gone."""
    settings.TICKETS_KEYS_OLD, made = ["older"], []
    team = Team.objects.create(name="research")
    for key in ("", "older", "gone"):
        settings.TICKETS_KEY = key
        made.append(make_destination(team.pk, key or "plain", "pagerduty", {"routing_key": "R" * 32}, "ada", "low"))
    settings.TICKETS_KEY = "newest"
    return made


def keys(destinations: list[Destination]) -> list[bool]:
    for one in destinations:
        one.refresh_from_db()
    return [is_newest(one.sealed, str(one.key)) for one in destinations]


def test_all_that_can_be_read_is_sealed_by_the_newest_key_and_the_rest_is_named(
    destinations: list[Destination], settings: Any
) -> None:
    lost, said = destinations[2].sealed, StringIO()
    with pytest.raises(CommandError, match=r"No key opens the secrets of gone \(team research\)"):
        call_command("reseal_secrets", stdout=said)
    assert said.getvalue().strip() == "2 sealed anew, 0 were by the newest key, 1 cannot be read"
    assert keys(destinations) == [True, True, False]
    assert destinations[2].sealed == lost
    settings.SECRET_KEY, settings.TICKETS_KEYS_OLD = "another", []
    for one in destinations[:2]:
        assert unseal(one.sealed, str(one.key)) == {"routing_key": "R" * 32}
    assert AuditEntry.objects.filter(act="sealed the secrets of destinations anew").count() == 1


def test_a_second_time_changes_nothing(destinations: list[Destination]) -> None:
    Destination.objects.filter(pk=destinations[2].pk).update(sealed="")
    call_command("reseal_secrets", stdout=StringIO())
    before, said = list(Destination.objects.order_by("id").values_list("sealed", flat=True)), StringIO()
    call_command("reseal_secrets", stdout=said)
    assert said.getvalue().strip() == "0 sealed anew, 2 were by the newest key, 0 cannot be read"
    assert list(Destination.objects.order_by("id").values_list("sealed", flat=True)) == before


def test_any_change_of_a_destination_seals_its_secrets_anew(destinations: list[Destination]) -> None:
    for one in destinations:
        change_destination(one, {"severity_min": "high"}, RITA)
    assert keys(destinations) == [True, True, False]
