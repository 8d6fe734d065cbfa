"""The built front end keeps its promises: a small first script, and nothing fetched from anybody else."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

DIST = Path(__file__).parents[2] / "frontend" / "dist"
FIRST_SCRIPT_BYTES_MAX = 60_000
MANIFEST = DIST / ".vite" / "manifest.json"
pytestmark = pytest.mark.skipif(not MANIFEST.exists(), reason="the front end is not built: make build")


def test_the_first_script_stays_small_and_plotly_comes_later() -> None:
    entry = json.loads(MANIFEST.read_text())["src/main.tsx"]
    first = [entry["file"], *entry.get("imports", [])]
    assert sum(len(gzip.compress((DIST / name).read_bytes(), 9)) for name in first) <= FIRST_SCRIPT_BYTES_MAX
    assert any("plotly" in name for name in entry["dynamicImports"])


def test_style_sheets_fetch_nothing_from_elsewhere() -> None:
    for sheet in DIST.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", sheet.read_text())


def test_sign_in_and_error_pages_find_their_style_sheet_by_its_name() -> None:
    assert (DIST / "signin.css").exists()
