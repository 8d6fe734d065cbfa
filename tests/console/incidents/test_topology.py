"""The grid that lies ready and what is sent of its changes, on a real Valkey and real sockets."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import redis
import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import override_settings
from django.utils import timezone
from prometheus_client import REGISTRY

from console.incidents.models import ConditionState, Incident
from console.incidents.pictures import topology
from console.incidents.pictures.grid import DEAD, OK, STATES, Grid
from console.incidents.pictures.topology_frames import ALL, DELTA, States, apply_frame
from console.incidents.streams import Position
from ingest.models import Attempt, Job, Node
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.console.incidents.stalling import StallingJob
from tests.console.incidents.test_live import FRAMES_MAX, _frame, _Socket, _socket, _subscribe
from tests.ingest.conftest import Ingest, ingest, no_traces

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["ingest", "no_traces"]  # fixtures
N = 64


@pytest.fixture(autouse=True)
def nothing_kept(valkey: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test publishes stays however slow the machine is."""
    monkeypatch.setattr(topology, "OLD_SECONDS", 1e6)
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
    yield


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


def grid_with(dead: dict[int, str] | None = None, nodes: int = 8) -> Grid:
    dead = dead or {}
    ranks = list(range(N))
    return Grid(
        at="2026-01-01T00:00:00.000Z", nodes=[f"node-{k}" for k in range(nodes)], racks=[""] * nodes,
        states=list(STATES), rank=ranks,
        node=[rank * nodes // N for rank in ranks], local_rank=[rank % 8 for rank in ranks], tp=[0] * N, pp=[0] * N,
        dp=ranks, ep=[0] * N, state=[DEAD if rank in dead else OK for rank in ranks],
        note=[dead.get(rank, "") for rank in ranks], nic=["mlx5_0"] * N, gpu=["a:0"] * N, pid=ranks,
        last_seen_ms_ago=[5] * N, inferred=False, world_size=N,
    )  # fmt: skip


def unpacked(packed: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(packed))
    return found


def states_of(shown: dict[str, Any]) -> States:
    place = shown["stream"]
    note = np.array(shown["note"]["at"], np.uint32)
    return States(
        int(place["epoch"]), place["offset"], np.array(shown["state"], np.uint8), note, tuple(shown["note"]["texts"])
    )


def words(states: States) -> list[tuple[int, str]]:
    return [(int(state), states.texts[note]) for state, note in zip(states.state, states.note, strict=True)]


def words_of(grid: Grid) -> list[tuple[int, str]]:
    return list(zip(grid.state, grid.note, strict=True))


async def bytes_of(socket: _Socket) -> bytes:
    """The next binary frame."""
    for _ in range(FRAMES_MAX):
        said = await socket.receive_output(10)
        if said.get("bytes"):
            return bytes(said["bytes"])
    raise AssertionError("no binary frame")


publish = sync_to_async(topology.publish_grid)


async def test_a_page_that_follows_the_frames_shows_what_was_drawn_last(incident: Incident, viewer: Persona) -> None:
    await publish(incident.pk, grid_with())
    shown = await _topology(viewer, incident)
    states = states_of(shown)
    async with _socket(viewer) as socket:
        assert (await _subscribe(socket, **_place(shown)))["recovered"]
        kinds = []
        for dead in ({3: "gone"}, {3: "gone", 9: "killed"}, dict.fromkeys(range(40), "gone"), {}):
            await publish(incident.pk, grid_with(dead))
            frame = await bytes_of(socket)
            states = apply_frame(states, frame)
            kinds.append(frame[0])
            assert words(states) == words_of(grid_with(dead))
    assert kinds == [DELTA, DELTA, ALL, ALL]


async def test_who_comes_back_gets_the_frames_they_missed_and_after_many_all_at_once(
    incident: Incident, viewer: Persona
) -> None:
    await publish(incident.pk, grid_with())
    place = _place(await _topology(viewer, incident))
    await publish(incident.pk, grid_with({1: "gone"}))
    await publish(incident.pk, grid_with({1: "gone", 2: "gone"}))
    async with _socket(viewer) as socket:
        await _subscribe(socket, **place)
        assert [(await bytes_of(socket))[0] for _ in range(2)] == [DELTA, DELTA]
    for k in range(topology.FRAMES_KEPT):
        await publish(incident.pk, grid_with({k % 7: f"gone {k}"}))
    async with _socket(viewer) as socket:
        await _subscribe(socket, **place)
        frame = await bytes_of(socket)
        before = States(int(place["epoch"]), place["offset"], np.zeros(N, np.uint8), np.zeros(N, np.uint32), ("",))
        assert frame[0] == ALL
        assert words(apply_frame(before, frame)) == words_of(grid_with({k % 7: f"gone {k}"}))


async def test_with_other_places_the_page_is_told_to_fetch_the_grid_again(incident: Incident, viewer: Persona) -> None:
    await publish(incident.pk, grid_with())
    place = _place(await _topology(viewer, incident))
    async with _socket(viewer) as socket:
        await _subscribe(socket, **place)
        await publish(incident.pk, grid_with(nodes=4))
        assert (await _frame(socket, "resync"))["resync"] == place["subscribe"]
    later = await _topology(viewer, incident)
    assert later["stream"]["epoch"] != place["epoch"]
    assert len(_plain(later["nodes"])) == 4


async def test_texts_that_become_too_many_begin_a_new_epoch(
    incident: Incident, viewer: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "TEXTS_MAX", 3)
    epochs = []
    for k in range(4):
        await publish(incident.pk, grid_with({1: f"gone {k}"}))
        epochs.append((await _topology(viewer, incident))["stream"]["epoch"])
    assert epochs[0] == epochs[1] != epochs[2]


async def test_a_stranger_may_neither_fetch_nor_follow_it(incident: Incident, stranger: Persona) -> None:
    await publish(incident.pk, grid_with())
    answer = await sync_to_async(stranger.browser.get)(f"/api/v1/incidents/{incident.pk}/topology")
    assert answer.status_code == 404
    async with _socket(stranger) as socket:
        await socket.say(json.dumps({"subscribe": f"topology:{incident.pk}", "epoch": "", "offset": 0}))
        assert (await _frame(socket, "refused"))["refused"] == f"topology:{incident.pk}"


async def test_what_somebody_follows_is_drawn_and_what_nobody_follows_is_not(
    incident: Incident, viewer: Persona
) -> None:
    assert await sync_to_async(topology.wanted)() == []
    async with _socket(viewer) as socket:
        await _subscribe(socket, subscribe=f"topology:{incident.pk}", epoch="", offset=0)
        assert await sync_to_async(topology.wanted)() == [incident.pk]


def test_firing_incidents_have_a_grid_ready_before_anybody_asks(incident: Incident, attempt: Attempt) -> None:
    Incident.objects.filter(pk=incident.pk).update(condition=ConditionState.FIRING)
    topology.draw_wanted()
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        assert client.hexists(f"dgs:topology:{incident.pk}", "packed")


def test_nothing_is_drawn_twice_from_the_same_traces(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    own = topology.incident_grid

    def noted(one: Incident) -> Grid:
        drawn.append(one.pk)
        return own(one)

    monkeypatch.setattr(topology, "incident_grid", noted)
    topology.draw(incident.pk)
    topology.draw(incident.pk)
    assert drawn == [incident.pk]


def test_while_valkey_is_away_the_grid_is_drawn_for_the_asker_and_without_a_stream(
    incident: Incident, viewer: Persona
) -> None:
    with override_settings(REDIS_URL="unix:///nowhere/valkey.sock"):
        answer = viewer.browser.get(f"/api/v1/incidents/{incident.pk}/topology")
    assert answer.status_code == 200
    assert answer.json()["stream"]["epoch"] == ""


def test_packed_and_unpacked_answers_say_the_same(incident: Incident, viewer: Persona) -> None:
    path = f"/api/v1/incidents/{incident.pk}/topology"
    plain = viewer.browser.get(path)
    packed = viewer.browser.get(path, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert unpacked(packed.content) == plain.json()


def test_the_packed_grid_says_what_the_plain_one_does(incident: Incident, viewer: Persona) -> None:
    packed = viewer.browser.get(f"/api/v1/incidents/{incident.pk}/topology").json()
    plain = viewer.browser.get(f"/api/v1/incidents/{incident.pk}/grid").json()
    columns = {field.name for field in dataclasses.fields(Grid)} - {"at"}
    assert {name: _plain(packed[name]) for name in columns} == {name: plain[name] for name in columns}


def _plain(column: Any) -> Any:
    return [column["texts"][at] for at in column["at"]] if isinstance(column, dict) and "texts" in column else column


async def _topology(persona: Persona, incident: Incident) -> dict[str, Any]:
    answer = await sync_to_async(persona.browser.get)(f"/api/v1/incidents/{incident.pk}/topology")
    found: dict[str, Any] = answer.json()
    return found


def _place(shown: dict[str, Any]) -> dict[str, Any]:
    place = shown["stream"]
    return {"subscribe": place["name"], "epoch": place["epoch"], "offset": place["offset"]}


async def test_of_a_job_that_is_no_longer_heard_nobody_is_shown_as_well(ingest: Ingest) -> None:
    await StallingJob(ingest).run(2)
    await sync_to_async(_nothing_is_heard_any_more)()


def _nothing_is_heard_any_more() -> None:
    attempt = Attempt.objects.get()
    incident = make_incident(attempt)
    drawn = []
    for minutes in (0, 10, 20):
        Attempt.objects.update(last_received_at=timezone.now() - timedelta(minutes=minutes))
        topology.draw(incident.pk)
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            state, shows = client.hmget(f"dgs:topology:{incident.pk}", "state", "shows")
        drawn.append(({STATES[one] for one in state}, shows))
    assert [states for states, _ in drawn] == [{"ok"}, {"silent"}, {"silent"}]
    assert drawn[1] != drawn[2], "ages go on"


async def test_the_grid_says_in_which_racks_its_nodes_stand(ingest: Ingest) -> None:
    await StallingJob(ingest).run(1)
    await sync_to_async(_racks_are_said)()


def _racks_are_said() -> None:
    first = Node.objects.order_by("name").first()
    assert first is not None
    Node.objects.filter(pk=first.pk).update(rack="r7")
    assert topology.incident_grid(make_incident(Attempt.objects.get())).racks == ["r7", "", "", ""]


def _kept(incident: Incident, **changed: float) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.hset(f"dgs:topology:{incident.pk}", mapping=changed)


async def test_a_grid_that_nobody_draws_any_more_is_drawn_by_who_asks(
    incident: Incident, viewer: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(incident.pk, grid_with())
    await sync_to_async(_kept)(incident, drawn_at=0, packed_at=0)
    monkeypatch.setattr(topology, "incident_grid", lambda _: grid_with({3: "gone"}))
    assert _plain((await _topology(viewer, incident))["note"])[3] == "gone"


def test_the_packed_grid_catches_up_with_the_last_change(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [grid_with({3: "gone"}), grid_with()]
    monkeypatch.setattr(topology, "incident_grid", lambda _: drawn[-1])
    topology.draw(incident.pk)
    drawn.pop()
    _kept(incident, shows=0)
    topology.draw(incident.pk)
    assert _plain(unpacked(topology.packed_grid(incident))["note"])[3] == "", (
        "packing all at each change costs too much"
    )
    _kept(incident, packed_at=0)
    topology.draw(incident.pk)
    assert _plain(unpacked(topology.packed_grid(incident))["note"])[3] == "gone"


def test_while_another_draws_the_first_grid_for_long_the_asker_gets_one_without_a_stream(
    incident: Incident, viewer: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "ASKER_WAITS_S", 0.1)
    with redis.Redis.from_url(settings.REDIS_URL) as client, client.lock(f"dgs:topology:{incident.pk}:lock"):
        answer = viewer.browser.get(f"/api/v1/incidents/{incident.pk}/topology")
    assert answer.status_code == 200
    assert answer.json()["stream"]["epoch"] == ""


class _Between(redis.asyncio.Redis):
    """A client between whose first and second question something happens."""

    happens: Callable[[], None]

    async def hmget(self, *args: Any, **options: Any) -> Any:
        answer = await super().hmget(*args, **options)
        await sync_to_async(self.happens)()
        return answer


@pytest.mark.parametrize("what", ["laid out anew", "forgotten"])
async def test_what_happens_between_the_two_questions_is_not_missed(incident: Incident, what: str) -> None:
    await publish(incident.pk, grid_with())
    client: Any = _Between.from_url(settings.REDIS_URL)
    client.happens = lambda: None
    epoch, _ = await client.hmget(f"dgs:topology:{incident.pk}", ["epoch", "offset"])
    place = Position(f"topology:{incident.pk}", epoch.decode(), 0)
    await publish(incident.pk, grid_with({3: "gone"}))

    def happens() -> None:
        if what == "laid out anew":
            topology.publish_grid(incident.pk, grid_with(nodes=4))
        else:
            with redis.Redis.from_url(settings.REDIS_URL) as own:
                own.flushall()

    client.happens = happens
    try:
        heard = await topology.read_frames(client, place)
    finally:
        await client.aclose()
    assert not heard.frames
    assert bool(heard.gap) == (what == "laid out anew")
    assert (heard.position == place) == (what == "forgotten")


def _drawn_in_order(monkeypatch: pytest.MonkeyPatch, breaks: int = 0) -> list[int]:
    drawn: list[int] = []

    def noted(one: Incident) -> Grid:
        drawn.append(one.pk)
        if one.pk == breaks:
            raise ValueError("a diagnosis that cannot be read")
        return grid_with()

    monkeypatch.setattr(topology, "incident_grid", noted)
    return drawn


@pytest.fixture
def three(attempt: Attempt) -> list[int]:
    now = timezone.now()
    jobs = [Job.objects.create(team=attempt.job.team, name=f"other-{k}") for k in range(2)]
    others = [
        Attempt.objects.create(job=job, number=0, world_size=8, started_at=now, last_received_at=now) for job in jobs
    ]
    made = [make_incident(one) for one in (attempt, *others)]
    for one in made:
        topology.want(one.pk)
    return [one.pk for one in made]


def test_an_incident_that_cannot_be_drawn_leaves_the_others_be_and_is_counted(
    three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "DRAWING_SECONDS", 1e6)
    drawn = _drawn_in_order(monkeypatch, breaks=three[0])
    before = value_of("diogenes_grids_failed_total")
    topology.draw_wanted()
    assert sorted(drawn) == three
    assert value_of("diogenes_grids_failed_total") == before + 1


def test_a_worker_whose_time_is_over_leaves_the_rest_for_the_next_time(
    three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "DRAWING_SECONDS", -1.0)
    drawn = _drawn_in_order(monkeypatch, breaks=three[0])
    for _ in three:
        topology.draw_wanted()
    assert sorted(drawn) == three


def test_one_worker_draws_at_a_time(three: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = _drawn_in_order(monkeypatch)
    with redis.Redis.from_url(settings.REDIS_URL) as client, client.lock(topology.DRAWING_KEY):
        topology.draw_wanted()
    assert not drawn
    topology.draw_wanted()
    assert drawn


def value_of(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0
