"""The two laws: imports point upstream only; the seams, rca and the node's code are plain Python and numpy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, python_files, tracked_files, tree_of

SERVER_PACKAGES = {
    "django", "rest_framework", "drf_spectacular", "channels", "celery", "kombu", "redis", "psycopg",
    "psycopg_pool", "plotly", "uvicorn", "whitenoise", "asgiref",
}  # fmt: skip
SEAMS = ("nccl_instrument.wire", "ingest.window", "rca.findings", "console.incidents.live")


def pure_modules() -> list[str]:
    rooms = [path for path in python_files() if path.relative_to(ROOT).parts[0] in ("rca", "nccl_instrument")]
    found = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in rooms]
    # __main__ runs on import; stages.py is imported by training code that has torch.
    return sorted({*found, *SEAMS} - {name for name in found if name.endswith(("__main__", "__init__"))})


def imported_by(*modules: str) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter that imported these."""
    script = f"import sys, {', '.join(modules)}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_linter_keeps_every_contract() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_pure_modules_bring_in_nothing_but_numpy() -> None:
    assert imported_by(*pure_modules()) & (SERVER_PACKAGES | {"torch"}) == set()


@pytest.mark.parametrize("seam", SEAMS)
def test_a_seam_brings_in_nothing_but_numpy(seam: str) -> None:
    assert imported_by(seam) & (SERVER_PACKAGES | {"torch"}) == set()


def test_a_module_that_breaks_the_law_would_be_caught() -> None:
    assert "django" in imported_by("django")


def test_every_package_file_is_empty() -> None:
    packages = [
        path for path in tracked_files() if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] in PACKAGES
    ]
    filled = [str(path.relative_to(ROOT)) for path in packages if path.stat().st_size]
    assert packages
    assert filled == []


def test_nothing_is_imported_inside_a_function() -> None:
    """ruff's PLC0415 says so too, but a `noqa` would silence it."""
    hidden = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for path in python_files()
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert hidden == []
