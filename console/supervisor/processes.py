"""The console's own processes: how each is run and how one sees that it is up.

Web and ingest are probed over HTTP; worker and beat have no port, so their own first words in the log are awaited.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from console.supervisor.children import Child, Recipe, die_with_parent
from console.supervisor.servers import ServerFailed
from ingest.process import LOOKS_QUEUE, OTHER_QUEUE, URGENT_QUEUE

ROOT: Final = Path(__file__).resolve().parents[2]
MANAGE: Final = (sys.executable, str(ROOT / "manage.py"))
READY_SECONDS: Final = 120.0  # two busy cores need a minute
WORKER_IS_UP: Final = "ready."
BEAT_IS_UP: Final = "beat: Starting"
LISTENING: Final = "0A"  # of a socket, in /proc/net/tcp


def web_recipe(port: int) -> Recipe:
    return _uvicorn("web", "console.asgi:application", port)


def ingest_recipe(port: int, number: int = 1) -> Recipe:
    """One of the processes that share the port: ingest, ingest-2 and so on."""
    argv = [sys.executable, "-m", "ingest.serve", "--port", str(port)]
    name = f"ingest-{number}" if number > 1 else "ingest"
    return Recipe(name=name, argv=argv, answers=lambda child: listens(child.pid, port))


def ingest_processes() -> int:
    """What DIOGENES_INGEST_PROCESSES says, else one for each core, at most two: beyond that the database is the limit."""
    wanted = os.environ.get("DIOGENES_INGEST_PROCESSES", "")
    return min(max(int(wanted), 1), 64) if wanted.isdecimal() else min(len(os.sched_getaffinity(0)), 2)


def _uvicorn(name: str, application: str, port: int) -> Recipe:
    argv = [sys.executable, "-m", "uvicorn", application, "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "3"]
    argv += ["--http", "ingest.door.gate:Gate", "--ws-max-size", "65536"]
    proxies = os.environ.get("DIOGENES_TRUSTED_PROXIES", "")
    argv += ["--forwarded-allow-ips", proxies] if proxies else ["--no-proxy-headers"]
    return Recipe(name=name, argv=argv, answers=lambda child: listens(child.pid, port))


def looks_recipe() -> Recipe:
    """Looks and nothing else, so that nothing else keeps them waiting; two processes, for one look may take a minute."""
    return _worker("looks", 2, "--hostname", "looks@%h", "--queues", LOOKS_QUEUE)


def urgent_recipe() -> Recipe:
    """What people wait for. Three processes: one may deliver and one draw while acknowledgements end and answers are given."""
    return _worker("urgent", 3, "--hostname", "urgent@%h", "--queues", URGENT_QUEUE)


def worker_recipe() -> Recipe:
    """What takes long. Two processes: dumps and stages are read while one of them does upkeep."""
    return _worker("worker", 2, "--queues", OTHER_QUEUE)


def _worker(name: str, n_processes: int, *options: str) -> Recipe:
    argv = [
        sys.executable,
        "-m",
        "celery",
        "-q",
        "-A",
        "console",
        "worker",
        *options,
        "--concurrency",
        str(n_processes),
    ]
    argv += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    return Recipe(name=name, argv=argv, answers=says(WORKER_IS_UP))


def beat_recipe(folder: Path) -> Recipe:
    """`folder` outlives the stack: what is done every hour must not wait for an hour without a restart."""
    argv = [sys.executable, "-m", "celery", "-q", "-A", "console", "beat", "--loglevel", "INFO"]
    return Recipe(name="beat", argv=[*argv, "--schedule", str(folder / "beat"), "--pidfile="], answers=says(BEAT_IS_UP))


def demo_recipe(ingest_port: int, token_file: Path, folder: Path) -> Recipe:
    argv = [*MANAGE, "demo", "--server", f"http://127.0.0.1:{ingest_port}", "--token-file", str(token_file)]
    return Recipe(name="demo", argv=[*argv, "--folder", str(folder)], death_signal=signal.SIGTERM, stop_seconds=20.0)


def wait_for_http(child: Child, port: int) -> None:
    """Return once any answer comes. Raises ServerFailed when the child died or stays silent."""

    def answers() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()

    wait_until(child, answers)


def wait_for_words(child: Child, words: str) -> None:
    """Return once the child's log says so. Raises ServerFailed when it died or stays silent."""
    wait_until(child, lambda: says(words)(child))


def says(words: str) -> Callable[[Child], bool]:
    """Whether a child's log says so."""
    return lambda child: words in child.log_text()


def listens(pid: int, port: int) -> bool:
    """Whether this process itself takes connections: another may share its port, so asking over HTTP proves nothing."""
    try:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ours = {f"socket:[{row[9]}]" for row in rows if row[3] == LISTENING and int(row[1].split(":")[1], 16) == port}
        return any(os.readlink(file) in ours for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it just ended, or closed a file while we looked
        return False


def wait_until(child: Child, is_up: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + READY_SECONDS
    while not is_up():
        if not child.is_running():
            raise ServerFailed(
                f"{child.recipe.name} stopped while starting: {child.log_tail(1)} (see {child.log_path})"
            )
        if time.monotonic() > give_up_at:
            raise ServerFailed(f"{child.recipe.name} was not up within {READY_SECONDS:.0f} s; see {child.log_path}")
        time.sleep(0.05)


def manage(env: Mapping[str, str], *arguments: str) -> str:
    """Run one management command to its end and return what it printed. Raises ServerFailed with its last words."""
    done = subprocess.run(
        [*MANAGE, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        checks = [line.removeprefix("?: ") for line in said if "(diogenes.E" in line]  # start-up checks say more
        raise ServerFailed(f"manage.py {arguments[0]} failed: {[*checks, *said[-1:], 'it gave no reason'][0]}")
    return done.stdout


def bootstrap(env: Mapping[str, str], token_file: Path) -> dict[str, Any]:
    """Make sure a team, an administrator and an agent's token exist; the token goes to a file only we can read."""
    said = manage(env, "bootstrap", "--agent-token-file", str(token_file))
    made: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return made
