"""The start-up checks: each has an id, says what is wrong and what to do. docs/operations.md lists them.

Those of the settings alone run before every management command, as Django's own do. Those that ask the servers or look
at the machine run when a process starts (startup.py), with `manage.py doctor` and with `manage.py check --deploy`: they
must not keep `manage.py migrate` from mending what they complain about.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from console.incidents.streams import UNREACHABLE
from console.operations.alive import valkey
from ingest.needs import Missing, ask_migrations, ask_room
from ingest.traces.database import connect
from ingest.traces.space import data_folders, measure, size_words

TAG: Final = "diogenes"
POSTGRES_MIN: Final = 16
CLOCK_SECONDS_MAX: Final = 2.0
BUILT_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
LOCAL_HOSTS: Final = {"localhost", "127.0.0.1", "[::1]", "testserver"}
TITLES: Final = {
    "diogenes.E001": "the secret key is short or the debugging one",
    "diogenes.W002": "debugging is on",
    "diogenes.E003": "DIOGENES_LOG is neither json nor text",
    "diogenes.E004": "a period in the settings is no number or cannot be",
    "diogenes.E005": "DIOGENES_OPERATIONS is no address",
    "diogenes.E006": "metrics would be open to the network",
    "diogenes.W007": "the pages answer to other machines without TLS",
    "diogenes.E008": "the pages answer to any host name",
    "diogenes.W009": "a time zone other than UTC",
    "diogenes.E010": "the database does not answer",
    "diogenes.E011": "PostgreSQL is too old",
    "diogenes.E012": "migrations are not applied",
    "diogenes.E013": "there is no room for traces that arrive now",
    "diogenes.W014": "TimescaleDB is there and not used",
    "diogenes.W015": "the key of destinations' secrets can never be changed",
    "diogenes.E020": "Valkey does not answer",
    "diogenes.W021": "Valkey keeps nothing on disk",
    "diogenes.W022": "Valkey may throw away keys that matter",
    "diogenes.E030": "the front end is not built",
    "diogenes.W031": "this machine's clock differs from the database's",
    "diogenes.E032": "this machine's clock is in the past",
    "diogenes.W033": "the disk is nearly full",
    "diogenes.E034": "the data folder cannot be written",
    "diogenes.W035": "secrets can be read by others",
    "diogenes.W036": "there is no agent token",
}
Found = Iterator[CheckMessage]


def _error(number: str, what: str, hint: str) -> CheckMessage:
    return Error(what, hint=hint, id=f"diogenes.{number}")


def _warning(number: str, what: str, hint: str) -> CheckMessage:
    return Warning(what, hint=hint, id=f"diogenes.{number}")


def check_secrets(**_: Any) -> Found:
    key = settings.SECRET_KEY
    if not settings.DEBUG and (len(set(key)) < 5 or len(key) < 8 or key == "only-for-debugging"):
        yield _error("E001", "DIOGENES_SECRET_KEY is short or the debugging one: sessions could be forged.",
                     "Set it to 50 random characters, or leave it to `manage.py up`, which makes one.")  # fmt: skip
    key = settings.TICKETS_KEY
    if "," in key or key != key.strip():
        yield _warning("W015", "DIOGENES_TICKETS_KEY has a comma or a blank at an end: DIOGENES_TICKETS_KEYS_OLD cannot hold it.",
                       "Choose another while no secret is stored; else enter the secrets again after changing it.")  # fmt: skip
    if settings.DEBUG:
        yield _warning("W002", "DIOGENES_DEBUG is on: error pages show settings and code.", "Unset it on servers.")


def check_words(**_: Any) -> Found:
    if settings.LOG_FORM not in ("json", "text"):
        yield _error("E003", f"DIOGENES_LOG={settings.LOG_FORM} is neither json nor text.", "Set it to json or text.")
    for name, least, default in _PERIODS:
        value = os.environ.get(name, str(default))
        if not _is_number(value) or float(value) < least:
            yield _error("E004", f"{name}={value} is no number of at least {least:g}.", f"The default is {default:g}.")
    if settings.TIME_ZONE != "UTC" or not settings.USE_TZ:
        yield _warning("W009", f"TIME_ZONE is {settings.TIME_ZONE}: logs and pages would differ from the nodes'.",
                       "Leave TIME_ZONE at UTC; each browser chooses how it shows times.")  # fmt: skip


_PERIODS: Final = (
    ("DIOGENES_TRACE_DAYS", 1 / 24, 1.0),
    ("DIOGENES_EVIDENCE_DAYS", 0.0, 30.0),
    ("DIOGENES_WATCH_HEARD_SECONDS", 0.0, 1.0),
    ("DIOGENES_RESOLVE_AFTER_CLEAR_SECONDS", 0.0, 600.0),
)


def check_openness(**_: Any) -> Found:
    host, _colon, port = settings.OPERATIONS.rpartition(":")
    if settings.OPERATIONS != "off" and (not host or not port.isdecimal() or int(port) > 65535):
        yield _error("E005", f"DIOGENES_OPERATIONS={settings.OPERATIONS} is not host:port.",
                     "Set it to 127.0.0.1:0 (any free port), to an address, or to off.")  # fmt: skip
    elif host and not host.startswith(("127.", "[::1]", "localhost")) and not settings.METRICS_TOKEN:
        yield _error("E006", f"Metrics are told to anybody who reaches {settings.OPERATIONS}.",
                     "Set DIOGENES_METRICS_TOKEN, or listen on 127.0.0.1.")  # fmt: skip
    far = [name for name in settings.ALLOWED_HOSTS if name not in LOCAL_HOSTS]
    if far and not settings.HTTPS:
        yield _warning("W007", f"The pages answer to {', '.join(far[:3])}, and cookies go over plain HTTP.",
                       "Put TLS in front and set DIOGENES_HTTPS=1.")  # fmt: skip
    if "*" in settings.ALLOWED_HOSTS:
        yield _error("E008", "DIOGENES_ALLOWED_HOSTS is *: other sites' names could be made to lead here.",
                     "Name the hosts the pages are reached by.")  # fmt: skip


def check_database(**_: Any) -> Found:
    try:
        connection = connect()
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[0]
        yield _error("E010", f"The database does not answer: {reason}", "Start it, or mend DATABASE_URL.")
        return
    with connection:
        version = connection.info.server_version
        if version < POSTGRES_MIN * 10_000:
            yield _error("E011", f"PostgreSQL {version // 10_000} is too old.", f"Use {POSTGRES_MIN} or newer.")
        yield from _check_clock(connection)
        yield from _check_store(connection)
        row = connection.execute("SELECT to_regclass('ingest_agenttoken')").fetchone()
        if row != (None,) and connection.execute(_TOKENS).fetchone() == (0,):
            yield _warning("W036", "There is no agent token: no node can send.",
                           "Run `manage.py bootstrap`, or make one on the page Settings.")  # fmt: skip
    yield from _asked("E012", ask_migrations, "Run `manage.py migrate` and start the processes again.")
    yield from _asked("E013", ask_room, "Start ingest; it makes partitions for the next day.")


_TOKENS: Final = "SELECT count(*) FROM ingest_agenttoken WHERE revoked_at IS NULL"
_UNUSED: Final = """
SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'timescaledb')
AND (SELECT relkind FROM pg_class WHERE oid = to_regclass('ingest_trace_batch')) = 'p'
"""


def _check_store(connection: psycopg.Connection[Any]) -> Found:
    if connection.execute(_UNUSED).fetchone() == (True,):
        yield _warning("W014", "The server has TimescaleDB, and traces lie in native partitions.",
                       "Run `manage.py move_traces` when it suits you; nothing is wrong until then.")  # fmt: skip


def _check_clock(connection: psycopg.Connection[Any]) -> Found:
    before = time.time()
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    after = time.time()
    theirs = float(row[0]) if row else before
    off = max(before - theirs, theirs - after, 0.0)
    if off > CLOCK_SECONDS_MAX:
        yield _warning("W031", f"This machine's clock and the database's differ by {off:.1f} s.",
                       "Let NTP or chrony set both: nodes are placed in time by this clock.")  # fmt: skip


def _asked(number: str, ask: Callable[[], str], hint: str) -> Found:
    try:
        ask()
    except Missing as missing:
        yield _error(number, f"{missing}."[:1].upper() + f"{missing}."[1:], hint)
    except psycopg.Error as error:
        yield _error(number, f"Nobody can say: {str(error).strip().splitlines()[0]}", hint)


def check_valkey(**_: Any) -> Found:
    try:
        client = valkey()
        told: Any = client.info()
        policy: Any = client.config_get("maxmemory-policy")
    except UNREACHABLE as error:
        yield _error("E020", f"Valkey does not answer: {error}", "Start it, or mend REDIS_URL: no looks are taken.")
        return
    if not told.get("aof_enabled") and not told.get("rdb_saves") and not told.get("rdb_bgsave_in_progress"):
        yield _warning("W021", "Valkey keeps nothing on disk: tasks that wait are lost when it stops.",
                       "Set `appendonly yes`.")  # fmt: skip
    if told.get("maxmemory") and not str(policy.get("maxmemory-policy", "")).startswith(("noeviction", "volatile")):
        yield _warning("W022", "Valkey's maxmemory-policy may throw away tasks.", "Set it to noeviction.")


def check_machine(**_: Any) -> Found:
    if not (settings.FRONTEND_DIST / ".vite" / "manifest.json").exists():
        yield _error("E030", f"No built front end in {settings.FRONTEND_DIST}.",
                     "Run `make build`, or set DIOGENES_FRONTEND_DIST.")  # fmt: skip
    if datetime.now(UTC) < BUILT_AT:
        yield _error("E032", f"This machine's clock says {datetime.now(UTC):%Y-%m-%d}: before Diogenes was written.",
                     "Set the clock: traces would be filed in the wrong hour.")  # fmt: skip
    space = measure(data_folders())
    if space.free_bytes is not None and space.free_bytes < 2 * (space.reserve_bytes or 0):
        yield _warning("W033", f"{size_words(space.free_bytes)} are left for the database.",
                       "Make room, or shorten DIOGENES_TRACE_DAYS: traces are refused when little is left.")  # fmt: skip
    folder = settings.DATA_FOLDER
    if not folder.exists():
        return  # a set-up with servers of its own has none
    if not os.access(folder, os.W_OK | os.X_OK):
        yield _error("E034", f"{folder} cannot be written by this user.", "Mend its owner, or DIOGENES_DATA.")
    loose = [file.name for file in _secrets(folder) if stat.S_IMODE(file.stat().st_mode) & 0o077]
    if loose:
        yield _warning("W035", f"{', '.join(loose)} in {folder} can be read by other users.",
                       f"chmod 600 {' '.join(loose)}")  # fmt: skip


def _secrets(folder: Path) -> list[Path]:
    names = ("secret_key", "metrics_token", "agent_token")
    return [folder / name for name in names if (folder / name).is_file()]


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text) and abs(float(text)) != float("inf")
    except ValueError:
        return False


OF_SETTINGS: Final = (check_words, check_openness)
OF_THE_WORLD: Final = (check_secrets, check_database, check_valkey, check_machine)


def register_checks() -> None:
    """Hand all of them to Django; those of the world only run when they are asked for."""
    for check in OF_SETTINGS:
        register(_listed(check), TAG)
    for check in OF_THE_WORLD:
        register(_listed(check), TAG, deploy=True)


def _listed(check: Callable[..., Found]) -> Callable[..., list[CheckMessage]]:
    def listed(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
        return list(check())

    listed.__name__ = check.__name__
    return listed
