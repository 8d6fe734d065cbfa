"""Connections of the ingest process: a small pool for the committer, on the database Django is configured for.

Read when the application starts, not when it is imported, so that a test's database is the one that is used.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from django.db import connections
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

POOL_MAX: Final = 3
CONNECT_SECONDS: Final = 3
WAIT_SECONDS: Final = 3.0


def conninfo() -> str:
    """libpq's connection string for Django's default database."""
    wrapper = connections["default"]
    settings = wrapper.settings_dict
    named = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    parts: dict[str, Any] = {libpq: settings[key] for key, libpq in named.items() if settings.get(key)}
    options = {key: value for key, value in settings.get("OPTIONS", {}).items() if isinstance(value, str | int)}
    return make_conninfo("", **{"connect_timeout": CONNECT_SECONDS, **options, **parts})


def make_pool() -> AsyncConnectionPool[Any]:
    """A closed pool; the caller opens it in its event loop."""
    return AsyncConnectionPool(
        conninfo(),
        min_size=1,
        max_size=POOL_MAX,
        open=False,
        timeout=WAIT_SECONDS,
        reconnect_timeout=0,
        configure=_configure,
        kwargs={"autocommit": True},
    )


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    """Whatever the server's default is: an acknowledged batch must be on disk."""
    await connection.execute("SET synchronous_commit = on")


def connect() -> psycopg.Connection[Any]:
    """A plain connection in autocommit, for maintenance that must not run inside somebody's transaction."""
    return psycopg.connect(conninfo(), autocommit=True)
