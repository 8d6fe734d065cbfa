"""Where window packets lie: hypertables where TimescaleDB is in use, else range partitions by day; made and dropped here.

The same choice as ingest's (ingest/traces/stores.py), by what kind of table it is; packets are few, so partitions are made when
the first packet of a day comes. They are kept for thirty days by default, traces for one.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from console.stages.models import StagePacket

TABLE: Final = "stages_stagepacket"
DAYS_DEFAULT: Final = 30.0
DAY: Final = timedelta(days=1)
LOCK_TIMEOUT_MS: Final = 2_000
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('stages_stagepacket'))"


def packet_age() -> timedelta:
    """How long packets are kept: DIOGENES_STAGE_DAYS."""
    return timedelta(days=float(os.environ.get("DIOGENES_STAGE_DAYS", DAYS_DEFAULT)))


def store_packet(packet: StagePacket) -> None:
    """Write one packet, and make room for its day first."""
    with transaction.atomic():
        _make_room(packet.ended_at)
        packet.save(force_insert=True)


def drop_old_packets(now: datetime | None = None) -> int:
    """Drop days that are older than packets are kept; how many partitions or chunks."""
    before = (now or timezone.now()) - packet_age()
    if not is_partitioned():
        with connection.cursor() as cursor:
            cursor.execute("SELECT drop_chunks(%s::regclass, older_than => %s)", [TABLE, before])
            return len(cursor.fetchall())
    old = [name for name in partitions() if _day_of(name) + DAY <= before]
    for name in old:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            cursor.execute(f'DROP TABLE "{name}"')
    return len(old)


def is_partitioned() -> bool:
    """Whether the table is one of range partitions; else it is a hypertable."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%s)", [TABLE])
        row = cursor.fetchone()
    return bool(row and row[0])


def partitions() -> list[str]:
    """Names of the days, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = %s::regclass ORDER BY c.relname",
            [TABLE],
        )
        return [str(row[0]) for row in cursor.fetchall()]


def _make_room(at: datetime) -> None:
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    name = f"{TABLE}_{day:%Y%m%d}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NULL", [name])
        if not cursor.fetchone()[0] or not is_partitioned():
            return
        cursor.execute(_LOCK)
        cursor.execute(
            f'CREATE TABLE IF NOT EXISTS "{name}" PARTITION OF {TABLE} FOR VALUES FROM (%s) TO (%s)', [day, day + DAY]
        )


def _day_of(name: str) -> datetime:
    return datetime.strptime(name.rsplit("_", 1)[1], "%Y%m%d").replace(tzinfo=UTC)
