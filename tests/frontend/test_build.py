"""The built front end keeps its promises: a small first script, and nothing fetched from anybody else."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

DIST = Path(__file__).parents[2] / "frontend" / "dist"
FIRST_SCRIPT_BYTES_MAX = 60_000
MANIFEST = DIST / ".vite" / "manifest.json"
pytestmark = pytest.mark.skipif(not MANIFEST.exists(), reason="the front end is not built: make build")


def test_the_first_script_stays_small_and_plotly_comes_later() -> None:
    manifest = json.loads(MANIFEST.read_text())
    first = fetched_with(manifest, "src/main.tsx")
    files = [DIST / manifest[name]["file"] for name in first]
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) <= FIRST_SCRIPT_BYTES_MAX
    plotly = [name for name in manifest if "plotly" in name]
    assert plotly
    assert not set(plotly) & first


def fetched_with(manifest: dict[str, Any], name: str) -> set[str]:
    """A script and all that it imports at once, and so on."""
    found, front = set[str](), [name]
    while front:
        one = front.pop()
        if one not in found:
            found.add(one)
            front += manifest[one].get("imports", [])
    return found


def test_style_sheets_fetch_nothing_from_elsewhere() -> None:
    for sheet in DIST.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", sheet.read_text())


def test_sign_in_and_error_pages_find_their_style_sheet_by_its_name() -> None:
    assert (DIST / "signin.css").exists()
