"""A whole stack of its own for an accuracy suite: `manage.py up` with shipped defaults, and a client of its REST API.

The suites see what a user's script would see: they sign in with an API token, read JSON, and know nothing of the
database. The data folder is temporary and goes with the stack.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
READY = "Diogenes is running at"


class StackFailed(RuntimeError):
    """`manage.py up` ended before it was ready; the message holds what it printed."""


class RunningStack:
    """`with RunningStack() as stack:` starts everything but the demo and stops it again."""

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="diogenes-eval-"))
        self.port = free_port_pair()
        self.process: subprocess.Popen[str] | None = None
        self.token = ""

    def __enter__(self) -> Self:
        self.start()
        self.token = self.manage("api_token", "--label", "suite", "--role", "responder").split()[-1]
        return self

    def start(self) -> None:
        """Run `manage.py up`, on the same folder and ports each time."""
        command = [sys.executable, "manage.py", "up", "--port", str(self.port), "--data", str(self.data), "--demo", "0"]
        env = {**os.environ, "DIOGENES_DIE_WITH_PARENT": "1"}  # a suite that is killed leaves nothing running
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._wait_until_ready()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        if os.environ.get("KEEP_DATA") != "1":
            shutil.rmtree(self.data, ignore_errors=True)

    @property
    def ingest_url(self) -> str:
        return f"http://127.0.0.1:{self.port + 1}"

    @property
    def agent_token_file(self) -> Path:
        return self.data / "agent_token"

    def manage(self, *arguments: str) -> str:
        """Output of a management command run beside the stack."""
        env = {**os.environ, "DIOGENES_DATA": str(self.data), "DJANGO_SETTINGS_MODULE": "console.settings"}
        env.pop("DATABASE_URL", None)
        env.pop("REDIS_URL", None)
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=env, text=True, capture_output=True, check=True
        )
        return done.stdout.strip()

    def get(self, path: str) -> Any:
        """JSON of GET /api/v1/<path>."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1/{path}", headers={"Authorization": f"Token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def settings_overridden(self) -> list[str]:
        """Settings of the running stack that differ from the shipped ones; an honest run has none."""
        overridden: list[str] = self.get("session")["settings_overridden"]
        return overridden

    def incidents(self, job: str) -> list[dict[str, Any]]:
        """Incidents of the job with that name, resolved ones included."""
        found = self.get(f"incidents?job={job}&state=open,acknowledged,resolved")["incidents"]
        return [row for row in found if row["job"] == job]

    def _wait_until_ready(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if READY in line:
                return
        raise StackFailed("".join(printed))


def free_port_pair() -> int:
    """A port that is free together with the one above it, and stays so while nobody listens there.

    Below those the kernel gives to outgoing connections: a client that knocks at a port of that range, as agents do while
    a server is away, may be given that very port, and then the server cannot have it back.
    """
    while True:
        port = 12_000 + 2 * secrets.randbelow(9_000)  # tests seed `random`, all alike
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
