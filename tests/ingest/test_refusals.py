"""Refused batches are logged by name, and a flood of them does not flood the log."""

from __future__ import annotations

import logging

import pytest

from ingest.door.refusals import LINES_MAX, RefusalLog
from tests.builders import make_batch
from tests.ingest.conftest import Ingest


def test_a_flood_of_refusals_is_a_few_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    refusals = RefusalLog(now=lambda: clock[0])
    for number in range(500):
        refusals.note(400, "broken", {"number": number})
    assert len(caplog.records) == LINES_MAX
    clock[0] = 11.0
    refusals.note(400, "broken", {"number": 500})
    assert caplog.records[-1].__dict__["not_logged"] == 500 - LINES_MAX
    assert caplog.records[-1].__dict__["batch"] == {"number": 500}


async def test_a_refused_batch_is_logged_with_its_name(
    ingest: Ingest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.door.receive.REFUSALS", RefusalLog())
    monkeypatch.setattr("ingest.door.limits.JOBS_MAX", 0)
    caplog.set_level(logging.WARNING)
    batch = make_batch(job="one-too-many")
    assert (await ingest.send(batch)).status == 400
    (line,) = [record for record in caplog.records if hasattr(record, "batch")]
    assert line.__dict__["batch"] == {
        "job": "one-too-many", "node": batch.node, "boot": batch.boot_id.hex(), "number": batch.number,
    }  # fmt: skip


async def test_a_broken_batch_is_logged_with_the_names_it_claims(
    ingest: Ingest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.door.receive.REFUSALS", RefusalLog())
    assert (await ingest.post(b"not a batch")).status == 400
    (line,) = [record for record in caplog.records if hasattr(record, "batch")]
    assert line.__dict__["batch"] == {"job": "", "node": ""}
