"""A grid that nobody draws any more: who follows it hears how old it is, on a real Valkey and a real socket."""

from __future__ import annotations

import time

import pytest
from asgiref.sync import sync_to_async

from console.incidents.models import Incident
from console.incidents.pictures import topology
from console.incidents.pictures.topology_frames import AGE, HEAD, apply_frame
from tests.console.conftest import Persona
from tests.console.incidents.test_live import _socket, _subscribe
from tests.console.incidents.test_topology import (
    _kept,
    _place,
    _topology,
    bytes_of,
    grid_with,
    incident,
    nothing_kept,
    publish,
    states_of,
    words,
    words_of,
)

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["incident", "nothing_kept"]  # fixtures


async def test_who_follows_a_grid_that_nobody_draws_any_more_hears_how_old_it_is(
    incident: Incident, viewer: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(incident.pk, grid_with())
    shown = await _topology(viewer, incident)
    await sync_to_async(_kept)(incident, drawn_at=time.time() - 43)
    monkeypatch.setattr(topology, "OLD_SECONDS", 5.0)
    async with _socket(viewer) as socket:
        await _subscribe(socket, **_place(shown))
        kind, _, _, epoch, offset, number, age_ms, m = HEAD.unpack(await bytes_of(socket))
        assert (kind, epoch, offset, number, m) == (AGE, int(shown["stream"]["epoch"]), 0, incident.pk, 0)
        assert age_ms >= 43_000
        await publish(incident.pk, grid_with({3: "gone"}))
        while (frame := await bytes_of(socket))[0] == AGE:
            continue
        assert words(apply_frame(states_of(shown), frame)) == words_of(grid_with({3: "gone"}))
