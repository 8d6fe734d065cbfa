"""Whatever people and the machine do, and whatever is lost on the way: the browser ends with what the server says, and
both are what the timeline tells.

The server's side is the real one (REST, lifecycle, streams in Valkey); the browser's is the page's own applyMessage,
bundled from its source and run by node. What the page does around it (a gap fetches the snapshot, a reconnect resumes
from the last offset) is played here as frontend/src/live/streams.ts does it.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.test import override_settings
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.accounts.models import Role
from console.incidents import lifecycle, publish, streams
from console.incidents.acts import handling
from console.incidents.acts.handling import Found
from console.incidents.lifecycle import DETECTOR, Actor, BadAct, IllegalMove, StaleVersion
from console.incidents.models import ActorKind, Certainty, Incident, TimelineEntry
from console.silences.acts import end_silence, make_silence
from console.silences.models import Silence
from ingest.models import Attempt, Job, Team
from tests.console.conftest import Persona, make_persona
from tests.console.incidents.making import make_incident

FRONTEND = Path(__file__).parents[2] / "frontend"
BUNDLER = FRONTEND / "node_modules" / ".bin" / "rolldown"
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        not BUNDLER.exists() or shutil.which("node") is None, reason="node_modules are not installed: make build"
    ),
]
RITA, OLAF = Actor("rita", ActorKind.USER, 1), Actor("olaf", ActorKind.USER, 2)
PEOPLE = (RITA, OLAF)
NOWHERE = "unix:///nowhere/valkey.sock"
counter = itertools.count()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("browser") / "apply.mjs"
    source = FRONTEND / "src" / "live" / "apply.ts"
    subprocess.run([BUNDLER, source, "--format", "esm", "--file", made], check=True, capture_output=True)
    return made


@pytest.fixture
def page_code(bundle: Path) -> Iterator[Callable[[str, Any], Any]]:
    """`ask(verb, given)`: the browser's code answers."""
    script = Path(__file__).with_name("apply_lines.mjs")
    with subprocess.Popen(["node", script, bundle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin and node.stdout

        def ask(verb: str, given: Any = None) -> Any:
            node.stdin.write(json.dumps({verb: given}) + "\n")  # type: ignore[union-attr]
            node.stdin.flush()  # type: ignore[union-attr]
            return json.loads(node.stdout.readline())  # type: ignore[union-attr]

        yield ask
        node.stdin.close()


@dataclass
class Browser:
    """A page that shows one incident: connected or not, and what is lost on the way to it."""

    ask: Callable[[str, Any], Any]
    persona: Persona
    number: int
    is_connected: bool = True
    at: streams.Position = field(default_factory=lambda: streams.Position("", "", 0))

    def fetch(self) -> None:
        answer = self.persona.browser.get(f"/api/v1/incidents/{self.number}").json()
        place = answer["stream"]
        snapshot = {"stream": place, "incidents": [answer["incident"]], "timeline": answer["timeline"]}
        self.ask("snapshot", {**snapshot, "jobs": [], "ingest": None})
        self.at = streams.Position(place["name"], place["epoch"], place["offset"])

    def pull(self, loses: int = -1, repeats: int = -1) -> None:
        """Hear what is new. loses, repeats: the message of this place is lost, or comes twice."""
        if not self.is_connected:
            return
        heard = async_to_sync(_read)(self.at)
        self.at = heard.position
        for place, text in enumerate(heard.messages):
            for _ in range(0 if place == loses else 2 if place == repeats else 1):
                if self.ask("message", json.loads(text))["outcome"] == "gap":
                    return self.fetch()
        if heard.gap:
            self.fetch()

    def connect(self) -> None:
        """A new socket asks from where the page is, whatever an earlier one had sent."""
        place = self.state["stream"]
        self.at, self.is_connected = streams.Position(place["name"], place["epoch"], place["offset"]), True
        self.pull()

    def beat(self) -> None:
        """The beat says how far the page should be; what was lost is asked for."""
        self.pull()
        if self.state["stream"]["offset"] < self.at.offset:
            self.connect()

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("state", None)["state"]
        return found


async def _read(after: streams.Position) -> streams.Heard:
    client = streams.connect_reader()
    try:
        return await streams.Reader(client).read(after)
    finally:
        await client.aclose()


@dataclass
class Scene:
    """Two incidents of two jobs of a team, and a browser that shows the first."""

    first: int
    second: int
    team_id: int
    browser: Browser


STEPS: dict[str, Callable[[Scene, int], object]] = {
    **{verb: lambda scene, n, verb=verb: _move(scene.first, verb, n) for verb in lifecycle.MOVES},  # type: ignore[misc]
    "root acknowledged": lambda scene, n: _move(scene.second, "acknowledge", n),
    "root resolved": lambda scene, n: _move(scene.second, "resolve", n),
    "root resolved by the detector": lambda scene, n: lifecycle.move(scene.second, "resolve", DETECTOR, note="over"),
    "stale": lambda scene, n: lifecycle.move(scene.first, "acknowledge", PEOPLE[n % 2], version=max(n, 1)),
    "acknowledged for a minute": lambda scene, n: lifecycle.move(scene.first, "acknowledge", RITA, minutes=1),
    "time goes by": lambda scene, n: _end_acknowledgements(),
    "comment": lambda scene, n: lifecycle.comment(scene.first, PEOPLE[n % 2], "hm", f"key {n}"),
    "assign": lambda scene, n: handling.assign(scene.first, RITA, ("", "rita", "olaf")[n % 3]),
    "attach": lambda scene, n: handling.attach(scene.first, OLAF, scene.second),
    "detach": lambda scene, n: handling.detach(scene.first, OLAF),
    "review": lambda scene, n: handling.review(scene.first, RITA, Found(("real", "noise", "false")[n % 3], "right")),
    "silence": lambda scene, n: make_silence(scene.team_id, RITA, _job_of(scene.first), "why", 5 + n),
    "unsilence": lambda scene, n: [end_silence(one, OLAF) for one in Silence.objects.filter(team=scene.team_id)],
    "condition": lambda scene, n: _observe_condition(scene.first, ("firing", "clearing", "clear")[n % 3]),
    "diagnosis": lambda scene, n: _diagnose(scene.first, n),
    "worse": lambda scene, n: _observe(scene.first, "attached", severity="high"),
    "drop": lambda scene, n: setattr(scene.browser, "is_connected", False),
    "reconnect": lambda scene, n: scene.browser.connect(),
    "hear": lambda scene, n: scene.browser.pull(),
    "lose one": lambda scene, n: scene.browser.pull(loses=n % 3),
    "beat": lambda scene, n: scene.browser.beat(),
    "hear one twice": lambda scene, n: scene.browser.pull(repeats=n % 3),
    "Valkey starts anew": lambda scene, n: _forget_streams(),
    "late relay": lambda scene, n: publish.relay_waiting(),
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 8), st.booleans()), max_size=20))
def test_any_interleaving_ends_with_browser_and_snapshot_and_timeline_alike(
    page_code: Callable[[str, Any], Any], valkey: object, steps: list[tuple[str, int, bool]]
) -> None:
    scene = _scene(page_code)
    scene.browser.fetch()
    for name, n, is_valkey_away in steps:
        is_act = (
            "browser" not in STEPS[name].__code__.co_names and "_forget_streams" not in STEPS[name].__code__.co_names
        )
        with override_settings(REDIS_URL=NOWHERE if is_valkey_away and is_act else django_settings.REDIS_URL):
            try:
                STEPS[name](scene, n)
            except (IllegalMove, StaleVersion, BadAct):
                continue
    publish.relay_waiting()
    if not scene.browser.is_connected:
        scene.browser.connect()
    scene.browser.beat()  # of a lost last message no later one tells
    _check_alike(scene)


def _check_alike(scene: Scene) -> None:
    answer = scene.browser.persona.browser.get(f"/api/v1/incidents/{scene.first}").json()
    state = scene.browser.state
    assert state["incidents"] == [answer["incident"]]
    assert state["timeline"] == answer["timeline"]
    row = answer["incident"]
    assert told_by(list(TimelineEntry.objects.filter(incident=scene.first).order_by("id"))) == {
        name: row[name]
        for name in ("state", "condition", "assignee", "attached_to", "silence", "review", "acknowledged_by")
    }


def told_by(entries: list[TimelineEntry]) -> dict[str, Any]:
    """What an incident is by its timeline alone."""
    state, condition = lifecycle.replay(entries)
    told: dict[str, Any] = {
        "state": state, "condition": condition, "assignee": "", "attached_to": None, "silence": None, "review": "",
        "acknowledged_by": None,
    }  # fmt: skip
    for entry in entries:
        match entry.verb:
            case "acknowledged":
                told["acknowledged_by"] = entry.actor
            case "unacknowledged" | "reopened":
                told["acknowledged_by"] = None
            case "assigned" | "unassigned":
                told["assignee"] = entry.after
            case "attached to" | "detached":
                told["attached_to"] = int(entry.after) if entry.after else None
            case "silenced" | "unsilenced":
                told["silence"] = int(entry.after) if entry.after else None
            case "reviewed":
                told["review"] = entry.after
    return told


def _scene(ask: Callable[[str, Any], Any]) -> Scene:
    name, now = f"example {next(counter)}", timezone.now()
    team = Team.objects.create(name=name)
    numbers = []
    for k in range(2):
        job = Job.objects.create(team=team, name=f"{name} job {k}")
        attempt = Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now)
        numbers.append(make_incident(attempt, key=f"v1:{name}:{k}", symptom="straggler").pk)
    for person in ("rita", "olaf"):
        _person(person, team)
    viewer = make_persona(f"vera of {name}", team, Role.VIEWER)
    return Scene(numbers[0], numbers[1], team.pk, Browser(ask, viewer, numbers[0]))


def _person(name: str, team: Team) -> None:
    """Of every example's team."""
    from_before = handling.User.objects.filter(username=name).first()
    if from_before is None:
        make_persona(name, team, Role.RESPONDER)
    else:
        handling.Membership.objects.create(user=from_before, team=team, role=Role.RESPONDER)


def _move(number: int, verb: str, n: int) -> None:
    lifecycle.move(number, verb, PEOPLE[n % 2], note="why")


def _end_acknowledgements() -> None:
    Incident.objects.exclude(acknowledged_until=None).update(acknowledged_until=timezone.now() - timedelta(seconds=1))
    lifecycle.end_acknowledgements()


def _job_of(number: int) -> list[dict[str, Any]]:
    return [{"field": "job", "values": [Incident.objects.get(pk=number).job.name]}]


def _observe(number: int, verb: str, **fields: Any) -> None:
    lifecycle.observe(Incident.objects.get(pk=number), verb, fields)


def _observe_condition(number: int, after: str) -> None:
    incident = Incident.objects.get(pk=number)
    lifecycle.observe(incident, after, {"condition": after}, before=incident.condition, after=after)


def _diagnose(number: int, n: int) -> None:
    fields = {
        "certainty": Certainty.DIAGNOSED,
        "n_culprits": 1,
        "n_victims": 7 * n * n,
        "culprits": [n],
        "suspects": [n],
    }
    lifecycle.observe(Incident.objects.get(pk=number), "diagnosed", fields)


def _forget_streams() -> None:
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        client.flushall()
