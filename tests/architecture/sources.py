"""The tracked files of this repository, for the tests that read them all."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("console", "ingest", "rca", "nccl_instrument")


def tracked_files() -> list[Path]:
    """Every file git tracks or would track; outside a checkout (an unpacked archive) every file that is not built."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        built = {".venv", ".git", ".cache", "node_modules", "dist", "build", "var", "__pycache__"}
        return [path for path in ROOT.rglob("*") if path.is_file() and not built & set(path.parts)]
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def python_files(*, with_tests: bool = False) -> list[Path]:
    """Our Python; migrations are written by Django."""
    roots = {*PACKAGES, "manage.py"} | ({"tests"} if with_tests else set())
    found = [path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in roots]
    return [path for path in found if "migrations" not in path.parts]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))
