"""Golden transcripts of the live streams, as the server reads them; vitest replays the same files in the browser's code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from console.incidents import live

FOLDER = Path(__file__).parents[1] / "golden" / "live"
TRANSCRIPTS = sorted(FOLDER.glob("*.json"))
TWIN = Path(__file__).parents[2] / "frontend" / "src" / "live" / "rows.ts"


def read(path: Path) -> dict[str, Any]:
    transcript: dict[str, Any] = json.loads(path.read_text())
    return transcript


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 2


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_message_is_one_the_server_could_have_sent(path: Path) -> None:
    for raw in read(path)["messages"]:
        message = live.decode_message(json.dumps(raw))
        assert json.loads(live.encode_message(message)) == raw


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_rows_of_the_snapshots_are_rows_of_messages(path: Path) -> None:
    kinds = {"incidents": live.IncidentRow, "jobs": live.JobRow, "timeline": live.TimelineRow}
    for snapshot in (read(path)["snapshot"], read(path)["ends"]):
        for key, kind in kinds.items():
            for row in snapshot[key]:
                assert set(row) == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", [live.IncidentRow, live.TimelineRow, live.JobRow, live.IngestRow, live.DumpsRow])
def test_the_browser_knows_exactly_the_fields_of(kind: type) -> None:
    body = TWIN.read_text().split(f"export interface {kind.__name__} {{")[1].split("}")[0]
    names = [line.split(":")[0].strip() for line in body.strip().splitlines()]
    assert names == [field.name for field in dataclasses.fields(kind)]
