"""Packets outlive traces, in partitions and in hypertables: run on both stores (`make timescale`)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async

from console.stages import store
from console.stages.models import StagePacket
from tests.console.stages.test_stages import cut
from tests.console.stages.training import Training
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)


async def test_packets_outlive_traces_and_go_by_the_day(ingest: Ingest) -> None:
    await Training(ingest).train(150)
    (one,) = await cut()
    drop = sync_to_async(store.drop_old_packets)
    await drop(one.ended_at + timedelta(days=29))
    assert await StagePacket.objects.acount() == 1
    assert await drop(one.ended_at + timedelta(days=32)) == 1
    assert await StagePacket.objects.acount() == 0
    assert store.packet_age() == timedelta(days=30)
