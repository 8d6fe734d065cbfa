"""What `manage.py doctor` looks at: all start-up checks, and what only shows while everything runs.

Each question is asked the way its user would: a batch's door with an agent's token, the live socket with an upgrade, the
worker by name. Whatever a question raises is its finding; one that cannot be asked never hides the others.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.db.models import Count, Max, Q
from django.utils import timezone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_socket
from websockets.typing import Origin

from console.celery import app
from console.incidents.consumers import NOT_SIGNED_IN
from console.operations.alive import Note, read_alive
from console.operations.checks import TAG
from console.operations.needs import ask_pages, ask_roll, ask_valkey
from ingest.door.listening import hears
from ingest.models import AgentToken, Attempt, Node
from ingest.needs import Missing, ask_database, ask_disk, ask_migrations, ask_room
from ingest.traces.let_go import KINDS, read_let_go
from ingest.traces.stores import active_store

Mark = Literal["ok", "warning", "bad"]
SECONDS: Final = 5.0
REPORTING_NS: Final = 10_000_000_000
PLUGIN: Final = settings.BASE_DIR / "nccl_instrument/plugin/build/libnccl-profiler-diogenes.so"
RESTARTS_SECONDS: Final = 600.0
NAMED_MAX: Final = 20
SAID_ALREADY: Final = {
    "diogenes.E010": "database", "diogenes.E012": "migrations", "diogenes.E013": "room for traces", "diogenes.W033": "disk",
    "diogenes.E020": "Valkey", "diogenes.E030": "front end", "diogenes.W036": "agent tokens",
}  # fmt: skip
"""Start-up checks that ask what a question asked before: one fault is told once."""
STOPPED_STATES: Final = ("T", "t")
NCCL_SYMBOLS: Final = tuple(f"ncclProfiler_v{version}" for version in range(3, 8))


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table. advice: what to do, empty where nothing is."""

    name: str
    mark: Mark
    found: str
    advice: str = ""


class Doubt(Exception):
    """Not wrong for certain, or not wrong yet; the message says what, `advice` what to do."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(found)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Places:
    """Where the console and ingest are reached, and an agent's token, empty when none is at hand."""

    web: str
    ingest: str
    token: str


@dataclass(frozen=True, slots=True)
class Question:
    """needs: the question whose bad answer makes this one pointless; empty for none."""

    name: str
    ask: Callable[[], str]
    needs: str = ""


def examine(places: Places) -> Iterator[Finding]:
    """Everything, in the order in which one thing needs the other."""
    away: set[str] = set()
    for question in _questions(places):
        if question.needs in away:
            yield Finding(question.name, "warning", f"not asked: {question.needs} does not answer")
            continue
        finding = _finding(question.name, question.ask)
        if finding.mark == "bad":
            away.add(question.name)
        yield finding
    for problem in checks.run_checks(tags=[TAG], include_deployment_checks=True):
        if SAID_ALREADY.get(problem.id or "") in away:
            continue
        mark: Mark = "bad" if problem.level >= checks.ERROR else "warning"
        yield Finding(problem.id or "", mark, problem.msg, problem.hint or "")


def _questions(places: Places) -> list[Question]:
    return [
        Question("database", ask_database),
        Question("migrations", ask_migrations, "database"),
        Question("store", lambda: active_store().name, "database"),
        Question("room for traces", ask_room, "database"),
        Question("disk", ask_disk),
        Question("let go of", _let_go, "database"),
        Question("Valkey", ask_valkey),
        Question("front end", ask_pages),
        Question("web", lambda: _health(places.web)),
        Question("live socket", lambda: _socket(places.web), "web"),
        Question("ingest", lambda: _probe_ingest(places)),
        Question("looks", _looks, "Valkey"),
        Question("urgent", _urgent, "Valkey"),
        Question("worker", _worker, "Valkey"),
        Question("beat", lambda: ask_roll("beat"), "Valkey"),
        Question("doors", _doors, "Valkey"),
        Question("restarts", _restarts),
        Question("parts", _parts),
        Question("agents", _agents, "database"),
        Question("node clocks", _clocks, "database"),
        Question("agent tokens", _tokens, "database"),
        Question("profiler plugin", _plugin),
        Question("py-spy", _py_spy),
    ]


def _finding(name: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", ask())
    except Doubt as doubt:
        return Finding(name, "warning", str(doubt), doubt.advice)
    except Missing as missing:
        what, _, advice = str(missing).partition(": ")
        return Finding(name, "bad", what, advice)
    except Exception as error:
        found = str(error).strip().splitlines() or [type(error).__name__]
        return Finding(name, "bad", found[0][:300], "Start it, or see its log.")


def _request(base: str, path: str, token: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Status and body."""
    parts = urlsplit(base)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=SECONDS)
    try:
        connection.putrequest(method, path)
        if token:
            connection.putheader("Authorization", f"Bearer {token}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(1_000_000)
    except OSError as error:
        raise Missing(f"{base} does not answer ({error}): start it, or say where it is") from None
    finally:
        connection.close()


def _health(web: str) -> str:
    status, body = _request(web, "/healthz")
    if status != 200:
        raise Missing(f"{web}/healthz answers {status}: restart the web process and see its log")
    return f"{web} answers, version {json.loads(body)['version']}"


def _socket(web: str) -> str:
    """Upgrade as a browser would; not being signed in, we are let in and sent away with a reason."""
    address = web.replace("http", "ws", 1) + "/ws/v1/"
    try:
        with connect_socket(address, origin=Origin(web), open_timeout=SECONDS, close_timeout=1) as ours:
            ours.recv(timeout=SECONDS)
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd else 0
        if code == NOT_SIGNED_IN:
            return "upgrades"
        raise Missing(f"the socket was closed with {code}: see the log of web") from None
    except (OSError, TimeoutError) as error:
        raise Missing(f"no upgrade ({error}): does the proxy forward websockets?") from None
    return "upgrades"


def _probe_ingest(places: Places) -> str:
    """Knock with a token and no batch; the database is asked whether it is good."""
    if not places.token:
        status, _ = _request(places.ingest, "/healthz")
        raise Doubt(f"{places.ingest} answers {status}; no agent token at hand to knock with", "Say --token-file.")
    status, _ = _request(places.ingest, "/ingest/batches", places.token, "OPTIONS")
    if status == 401:
        raise Missing(f"{places.ingest} refuses the agent token: was it revoked, or is it another installation's?")
    if status != 200:
        raise Missing(f"{places.ingest} answers {status} to an agent: see the log of ingest")
    return f"{places.ingest} takes the agent token; {ask_roll('ingest')}"


def _looks() -> str:
    """Ask through the broker: that is the way looks take."""
    _ping("looks@*", "no worker of looks alone answers: looks wait, or none are taken; start one, or see its log")
    return f"answers; {ask_roll('looks')}"


def _urgent() -> str:
    _ping("urgent@*", "no worker of what is urgent answers: nobody is paged; start one, or see its log")
    return f"answers; {ask_roll('urgent')}"


def _worker() -> str:
    _ping("celery@*", "no worker answers: no dumps are read, nothing is built or tidied up; start one, or see its log")
    return f"answers; {ask_roll('worker')}"


def _ping(pattern: str, otherwise: str) -> None:
    """The first answer will do: to wait for all takes the whole time."""
    if not app.control.ping(pattern=pattern, matcher="glob", timeout=2.0, limit=1):
        raise Missing(otherwise)


def _doors() -> str:
    notes = read_alive()
    if notes is None:
        raise Missing("Valkey is away: nobody can say who lives")
    found = [(note.name, _readiness(note)) for note in notes]
    doubtful = [f"{name} is {status}" for name, status in found if status != "ready"]
    if doubtful:
        more = f", and {len(doubtful) - NAMED_MAX} more" if len(doubtful) > NAMED_MAX else ""
        raise Doubt(f"{len(doubtful)} of {len(notes)}: {', '.join(doubtful[:NAMED_MAX])}{more}",
                    "Ask their /readyz with the metrics token; it says what is missing.")  # fmt: skip
    return f"{len(notes)} processes answer and are ready"


def _restarts() -> str:
    """What `manage.py up` started again lately: it runs now, and something made it die."""
    try:
        restarts = json.loads((settings.DATA_FOLDER / "restarts").read_text())
    except (OSError, ValueError):
        return "not known: `manage.py up` does not run here"
    late = {name: time.time() - restart["last_at"] for name, restart in restarts.items()}
    lately = [f"{name} {age:.0f} s ago" for name, age in late.items() if age < RESTARTS_SECONDS]
    if lately:
        raise Doubt(f"started again: {', '.join(lately)}", f"See their logs in {settings.DATA_FOLDER / 'logs'}.")
    return f"none in the last {RESTARTS_SECONDS / 60:.0f} minutes"


def _parts() -> str:
    """What `manage.py up` started and somebody stopped: held by a file, or by a signal; such a part is there and does nothing."""
    folder = settings.DATA_FOLDER
    try:
        noted = [line.split() for line in (folder / "children").read_text().splitlines()]
    except OSError:
        return "not known: `manage.py up` does not run here"
    held = sorted(path.name for path in (folder / "held").iterdir()) if (folder / "held").is_dir() else []
    stopped = [f"{name} (pid {pid})" for pid, _, name in noted if _state_of(int(pid)) in STOPPED_STATES]
    said = [*(f"{name} is held" for name in held), *(f"{name} is stopped" for name in stopped)]
    if said:
        advice = [f"Remove {folder / 'held' / name} to let it start." for name in held]
        advice += ["A stopped process goes on with `kill -CONT PID`; find out first who stopped it."] if stopped else []
        raise Doubt("; ".join(said), " ".join(advice))
    return f"{len(noted)} run; none is held or stopped"


def _state_of(pid: int) -> str:
    """The letter of /proc/PID/stat, '' where there is no such process; the name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _readiness(note: Note) -> str:
    if note.host != socket.gethostname():
        return "ready"  # its door is on its own machine's loopback
    try:
        _, body = _request(f"http://{note.address}", "/readyz", settings.METRICS_TOKEN)
        return str(json.loads(body)["status"])
    except (Missing, ValueError, KeyError):
        return "silent"


def _agents() -> str:
    nodes = Node.objects.filter(attempt__state=Attempt.State.RUNNING)
    heard = Q(received_ns__gte=time.time_ns() - REPORTING_NS)
    found = nodes.aggregate(all=Count("pk"), reporting=Count("pk", filter=heard), newest=Max("received_ns"))
    if not found["all"]:
        raise Doubt("no job is running", "")
    if found["reporting"] < found["all"] and not hears(timezone.now()):
        raise Doubt(f"{found['all'] - found['reporting']} of {found['all']} nodes are unheard: ingest was not listening",
                    "That says nothing of the nodes: see what ingest says here and in its log.")  # fmt: skip
    if found["reporting"] < found["all"]:
        age = (time.time_ns() - found["newest"]) / 1e9
        raise Doubt(f"{found['all'] - found['reporting']} of {found['all']} nodes are silent; newest batch {age:.0f} s old",
                    "See the page Nodes, then the agents' logs.")  # fmt: skip
    return f"all {found['all']} nodes report"


def _let_go() -> str:
    found = read_let_go()
    said = ", ".join(f"{n} {KINDS.get(kind, kind)}" for kind, n in found.items() if n)
    if found["windows_cut"] or found["hours"]:
        raise Doubt(
            said, "Which they were is in the worker's log. Give the database more disk, or keep fewer days of traces."
        )
    return said or "nothing"


def _clocks() -> str:
    wrong = Node.objects.filter(attempt__state=Attempt.State.RUNNING, wrong_clock=True)
    if names := list(wrong.values_list("name", flat=True)[:5]):
        raise Doubt(
            f"{wrong.count()} wrong: {', '.join(names)}", "Their data is placed right all the same; set them by NTP."
        )
    return "none is wrong"


def _tokens() -> str:
    live = AgentToken.objects.filter(revoked_at=None)
    used = live.aggregate(n=Count("pk"), last=Max("last_used_at"))
    if not used["n"]:
        raise Missing("there is none, so no node can send: run `manage.py bootstrap`")
    return f"{used['n']}, last used {used['last']:%Y-%m-%d %H:%M} UTC" if used["last"] else f"{used['n']}, never used"


def _plugin() -> str:
    """Load it in a process of its own: what it does there is none of ours."""
    if not PLUGIN.exists():
        raise Doubt("not built here", "Only nodes need it: make -C nccl_instrument/plugin.")
    script = f"import ctypes; so = ctypes.CDLL({str(PLUGIN)!r}); print(*[n for n in {NCCL_SYMBOLS} if hasattr(so, n)])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it exports no profiler"])[-1]
        raise Missing(f"{PLUGIN.name} does not load ({last}): build it on this machine")
    return f"loads, exports {done.stdout.strip()}"


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = shutil.which("py-spy") or (str(beside) if beside.exists() else "")
    if not found:
        raise Doubt("not found", "Nodes need it for stacks: pip install py-spy.")
    return found
