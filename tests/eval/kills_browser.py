"""A signed-in browser for the suite `kills`: a session, REST reads and acts, and a live socket that reconnects as pages do.

What it has been shown is noted with the time, so that "everything is live again" is what a person would see, not what a
process list says.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 5.0)  # those of frontend/src/live/socket.ts
SILENT_S = 8.0
AWAY = (OSError, urllib.error.URLError, WebSocketException, ValueError)


class Browser(threading.Thread):
    """`with Browser(port, link):` follows the first team's stream. `messages`: (when, type) of what came, newest last."""

    def __init__(self, port: int, link: str) -> None:
        super().__init__(name="browser", daemon=True)
        self.base = f"http://127.0.0.1:{port}"
        self.jar = CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))
        self._sign_in(link)
        self.heard_at = 0.0
        self.epochs: set[str] = set()
        self.n_messages = self.n_sockets = self.n_resyncs = 0
        self.disorder: list[str] = []
        self._place: tuple[str, int] = ("", 0)
        self._stopping = threading.Event()

    def __enter__(self) -> Browser:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(5)

    def get(self, path: str) -> Any:
        """JSON of GET /api/v1/<path> with the session. Raises one of AWAY."""
        with self.opener.open(f"{self.base}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)

    def act(self, number: int, verb: str, body: dict[str, Any], key: str) -> Any:
        """POST an act on an incident; repeating it with the same key acts once. Raises one of AWAY."""
        token = next(cookie.value for cookie in self.jar if cookie.name == "csrftoken") or ""
        headers = {"Content-Type": "application/json", "X-CSRFToken": token, "Idempotency-Key": key}
        address = f"{self.base}/api/v1/incidents/{number}/{verb}"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with self.opener.open(request, timeout=10) as answer:
            return json.load(answer)

    def run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            before = self.n_messages
            with contextlib.suppress(*AWAY):
                self._follow()
            attempt = 0 if self.n_messages > before else attempt + 1
            step = BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]
            self._stopping.wait(step * random.uniform(0.5, 1.0))

    def _sign_in(self, link: str) -> None:
        page = self.opener.open(link, timeout=20).read().decode()
        form = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert form is not None, "the sign-in page has no form"
        self.opener.open(link, urlencode({"csrfmiddlewaretoken": form[1]}).encode(), timeout=20).read()

    def _follow(self) -> None:
        stream = self.get("jobs")["stream"]
        self.heard_at = time.time()  # a snapshot
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.jar)
        uri = self.base.replace("http", "ws") + "/ws/v1/"
        with connect(uri, additional_headers={"Cookie": cookies}, origin=self.base, open_timeout=10) as socket:
            self.n_sockets += 1
            self._place = (stream["epoch"], stream["offset"])
            ask = {"subscribe": stream["name"], "epoch": stream["epoch"], "offset": stream["offset"]}
            socket.send(json.dumps(ask))
            while not self._stopping.is_set():
                self._note(json.loads(socket.recv(timeout=SILENT_S)))

    def _note(self, frame: dict[str, Any]) -> None:
        if "subscribed" in frame:
            self._place = (frame["epoch"], frame["offset"])
        if "resync" in frame:
            self.n_resyncs += 1
            raise ValueError("fetch the snapshot again")
        if "type" not in frame:
            return
        epoch, offset = self._place
        if frame["epoch"] == epoch and frame["offset"] != offset + 1:
            self.disorder.append(f"{frame['stream']}: {frame['offset']} after {offset}")
        self._place = (frame["epoch"], frame["offset"])
        self.epochs.add(frame["epoch"])
        self.n_messages += 1
        self.heard_at = time.time()
