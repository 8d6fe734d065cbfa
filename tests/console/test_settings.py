"""Addresses of servers as the environment spells them, and as Django, Celery and psycopg need them."""

from __future__ import annotations

import pytest
from django.conf import settings as configured
from django.core.exceptions import ImproperlyConfigured

from console.settings import _NOTICE_DEATH, _broker, _database


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql:///diogenes?host=%2Frun%2Fx&user=postgres",
            {"NAME": "diogenes", "USER": "postgres", "HOST": "/run/x", "PORT": "", "PASSWORD": "", "OPTIONS": {}},
        ),
        (
            "postgres://rita:s%40fe@db.example:6432/prod?sslmode=require&connect_timeout=9",
            {
                "NAME": "prod", "USER": "rita", "PASSWORD": "s@fe", "HOST": "db.example", "PORT": "6432",
                "OPTIONS": {**_NOTICE_DEATH, "sslmode": "require", "connect_timeout": "9"},
            },
        ),
    ],
)  # fmt: skip
def test_a_database_url_becomes_djangos_entry(url: str, expected: dict[str, object]) -> None:
    entry = _database(url)
    assert {name: entry[name] for name in expected} == expected


def test_what_is_no_database_url_is_one_sentence() -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL is not a PostgreSQL URL"):
        _database("mysql://x/y?z")


def test_the_broker_is_the_same_server_in_celerys_spelling() -> None:
    assert _broker("unix:///run/x/valkey.sock") == "redis+socket:///run/x/valkey.sock"
    assert _broker("rediss://cache.example:6380/2") == "rediss://cache.example:6380/2"


def test_pages_answer_to_this_machine_only_unless_told() -> None:
    assert set(configured.ALLOWED_HOSTS) >= {"localhost", "127.0.0.1"}
    assert "*" not in configured.ALLOWED_HOSTS
    assert configured.SESSION_COOKIE_HTTPONLY
