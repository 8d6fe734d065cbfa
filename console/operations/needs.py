"""What each process of the console needs, beyond what ingest asks for (ingest/needs.py).

The web process is of use without workers: people must see that looks have stopped. So looks, urgent, worker, beat,
ingest and Valkey make its readiness `degraded`, not `not ready`.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from django.conf import settings

from console.operations.alive import read_alive, valkey
from ingest import process
from ingest.needs import NEEDS, Missing, Need, ask_database, ask_migrations

LATE_SECONDS: Final = 15.0
DATABASE: Final = (Need("database", ask_database), Need("migrations", ask_migrations))


def ask_valkey() -> str:
    """The server's version."""
    told = valkey().info("server")
    version = told.get("valkey_version") or told.get("redis_version")
    return f"{'Valkey' if 'valkey_version' in told else 'Redis'} {version}"


def ask_pages() -> str:
    if not (settings.FRONTEND_DIST / ".vite" / "manifest.json").exists():
        raise Missing("the front end is not built: run `make build`, or set DIOGENES_FRONTEND_DIST")
    return "built"


def ask_roll(name: str) -> str:
    """Whether a process of this name was heard from lately, and its loop comes round."""
    notes = read_alive()
    if notes is None:
        raise Missing("Valkey is away: nobody can say")
    ours = [note for note in notes if note.process == name and not note.is_child]
    if not ours:
        raise Missing(f"no {name} process was heard from: start one, or see its log")
    stuck = [note for note in ours if note.tick_age > LATE_SECONDS]
    if len(stuck) == len(ours):
        raise Missing(f"{name} lives, but its loop has stood still for {max(note.tick_age for note in stuck):.0f} s")
    return f"{len(ours)} alive" + (f", {len(stuck)} of them stuck" if stuck else "")


def ask_tick() -> str:
    """Whether this process' own loop comes round: a worker's heart, a beat that sends."""
    age = process.tick_age()
    if age > LATE_SECONDS:
        raise Missing(f"its loop has stood still for {age:.0f} s: see its log; Valkey may be away")
    return f"{age:.0f} s ago"


@cache
def needs_of(name: str) -> tuple[Need, ...]:
    """What a process of this name asks for when it is asked whether it is ready."""
    valkey, tick = Need("valkey", ask_valkey), Need("tick", ask_tick)
    if name == "web":
        others = [Need(other, partial(ask_roll, other), is_must=False) for other in process.SERVERS if other != "web"]
        return (*DATABASE, Need("pages", ask_pages), Need("valkey", ask_valkey, is_must=False), *others)
    if name == "ingest":
        return NEEDS
    if name in ("looks", "urgent", "worker"):
        return (*DATABASE, valkey, tick)
    return (valkey, tick)
