"""The real stack for a browser: Django, Channels and ingest under uvicorn in a thread, and a job whose traces arrive.

Everything that touches the database runs in a thread of its own (`Stack.do`): Playwright keeps an event loop running in
the test's thread, and Django rightly refuses to block one.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import uvicorn
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import connections
from django.utils import timezone

from console.accounts.models import Membership, Role
from console.asgi import application
from console.celery import app
from console.incidents.models import Incident
from console.incidents.watching.watch import watch_job
from ingest.door.tokens import make_agent_token
from ingest.models import Attempt, Team
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import at_wall
from tests.console.incidents.stalling import StallingJob

T = TypeVar("T")
PASSWORD = "a lantern at noon"
# No normal is known of a job this young, so the trigger waits the full ten seconds.
HEALTHY_SECONDS, STALLED_SECONDS = 4, 13
NODES = 4
SECOND = 1_000_000_000


class Server:
    """uvicorn on a free port of this machine."""

    def __init__(self, port: int = 0) -> None:
        self.socket = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self.socket.getsockname()
        self.url = "http://{}:{}".format(*self.address)
        config = uvicorn.Config(application, log_level="warning", ws="websockets-sansio", timeout_graceful_shutdown=1)
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, args=([self.socket],), daemon=True)

    def start(self) -> None:
        app.conf.task_always_eager = True  # there is no worker: what one is asked for is done at once
        self.thread.start()
        deadline = time.monotonic() + 20
        while not self.uvicorn.started:
            assert self.thread.is_alive() and time.monotonic() < deadline, "the web server did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self.thread.join(20)
        app.conf.task_always_eager = False
        self.socket.close()


@dataclass
class Stack:
    """A server, three people of one team, and a job that can run and stall."""

    server: Server
    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    cookies: dict[str, str] = field(default_factory=dict)
    token: str = ""

    def do(self, act: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call something that uses the database."""
        return self.worker.submit(act, *args, **kwargs).result(60)

    def prepare(self) -> None:
        self.do(self._prepare)

    def _prepare(self) -> None:
        team = Team.objects.create(name="training")
        self.token = make_agent_token(team, "cluster a")
        for name, role in (("rita", Role.RESPONDER), ("vera", Role.VIEWER), ("ada", Role.ADMIN)):
            user = User.objects.create(username=name, password=_password())
            Membership.objects.create(user=user, team=team, role=role)
            self.cookies[name] = session_of(user)

    def restart_after(self, act: Callable[..., Any], *args: Any) -> None:
        """Stop the server, do something nobody hears of, and serve the same address again."""
        self.server.stop()
        self.do(act, *args)
        self.server = Server(self.server.address[1])
        self.server.start()

    def stop(self) -> None:
        self.server.stop()
        self.do(connections.close_all)
        self.worker.shutdown()

    def stalling_job(self) -> Incident:
        """A job runs, then one rank stops entering ops; looks are taken and the incident is open when this returns."""
        self.run_job()
        return self.do(Incident.objects.get)

    def run_job(self) -> None:
        """Send what the job's nodes saw, all of it now as after a short outage of the network, and look."""
        with ThreadPoolExecutor(NODES) as agents:
            for sent in [agents.submit(self._send, bodies) for bodies in _bodies_by_node()]:
                sent.result(60)
        self.do(_look)

    def _send(self, bodies: list[bytes]) -> None:
        """One node's batches, in order, over one connection."""
        connection = http.client.HTTPConnection(*self.server.address, timeout=20)
        for body in bodies:
            connection.request("POST", "/ingest/batches", body, {"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        connection.close()


@cache
def _password() -> str:
    """PASSWORD as it is stored: hashing takes a fifth of a second by intent, and every test has three people."""
    return make_password(PASSWORD)


def _bodies_by_node() -> list[list[bytes]]:
    """The encoded batches of a job that ends now; encoding goes first, so that none is old when it arrives."""
    total = HEALTHY_SECONDS + STALLED_SECONDS
    job = StallingJob(ingest=None, stalls_from=HEALTHY_SECONDS)  # type: ignore[arg-type]
    batches: list[list[TraceBatch]] = [[] for _ in range(NODES)]
    for job.number in range(total):
        for node in range(NODES):
            batches[node].append(job.batch(node))
    first_ns = time.time_ns() - total * SECOND
    walls = [first_ns + (number + 1) * SECOND for number in range(total)]
    return [[encode_batch(at_wall(batch, wall)) for batch, wall in zip(one, walls, strict=True)] for one in batches]


def _look() -> None:
    for attempt in Attempt.objects.all():
        watch_job(attempt.pk)


def session_of(user: User) -> str:
    """A session as signing in makes it: its cookie's value."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    user.last_login = timezone.now()
    user.save()
    return str(session.session_key)
