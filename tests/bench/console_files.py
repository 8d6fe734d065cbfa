"""What the browser fetches before anything else: the first script and all it imports, packed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

DIST = Path(__file__).parents[2] / "frontend" / "dist"


def first_js_kb() -> float:
    """kB of gzipped JavaScript that the page starts with; plotly must not be in it."""
    manifest = json.loads((DIST / ".vite" / "manifest.json").read_text())
    found, front = set[str](), ["src/main.tsx"]
    while front:
        one = front.pop()
        if one not in found:
            found.add(one)
            front += manifest[one].get("imports", [])
    if any("plotly" in name for name in found):
        raise SystemExit("plotly is part of the first script")
    return round(sum(len(gzip.compress((DIST / manifest[name]["file"]).read_bytes(), 9)) for name in found) / 1000, 1)
