"""What documents promise is there: every path they name exists, and lock files bind to content alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, python_files

LOCKS = ["requirements/server.lock", "requirements/dev.lock"]


def paths_in(document: str) -> list[str]:
    """Every `a/b` or `name.ext` in backticks that means a file or folder of this repository."""
    quoted = re.findall(r"`([\w./-]+)`", (ROOT / document).read_text())
    return [name for name in quoted if "/" in name or Path(name).suffix in {".py", ".md", ".h", ".c", ".ts", ".toml"}]


@pytest.mark.parametrize("document", ["docs/glossary.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_in_a_document_exists(document: str) -> None:
    paths = paths_in(document)
    assert paths
    assert [name for name in paths if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_python_locks_hold_hashes_and_no_addresses(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "--hash=sha256:" in text
    assert not re.search(r"https?://|--index-url|--extra-index-url|--find-links", text)


@pytest.mark.parametrize("folder", ["frontend", "tests/timescale"])
def test_npm_locks_hold_hashes_and_no_addresses(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []


def test_every_locked_python_package_is_pinned_to_one_version() -> None:
    for lock in LOCKS:
        pins = [line for line in (ROOT / lock).read_text().splitlines() if line and not line.startswith((" ", "#"))]
        assert pins
        assert [pin for pin in pins if not re.match(r"[\w.\[\],-]+==\S+", pin)] == []


def test_what_the_tests_lock_adds_never_changes_what_runs() -> None:
    server, dev = (set(re.findall(r"^([\w.-]+==\S+)", (ROOT / lock).read_text(), re.M)) for lock in LOCKS)
    assert server - dev == set()


def test_every_variable_the_servers_read_is_on_the_page_of_settings_and_no_other() -> None:
    """`DIOGENES_DEMO` is the supervisor's word to its own children; agents' variables are on docs/agent.md."""
    sources = [path.read_text() for path in python_files() if path.relative_to(ROOT).parts[0] in ("console", "ingest")]
    ours = set(re.findall(r"\"(DIOGENES_[A-Z_]+)\"", "".join(sources))) - {"DIOGENES_DEMO", "DIOGENES_DIE_WITH_PARENT"}
    assert "DIOGENES_SECRET_KEY" in ours
    described = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/settings.md").read_text(), re.M))
    assert ours - described == set()
    assert described - ours - {"DATABASE_URL", "REDIS_URL"} == set()
    in_short = set(re.findall(r"^\| `(\w+)`", (ROOT / "README.md").read_text(), re.M))
    assert in_short <= described


def test_every_link_in_the_top_documents_leads_somewhere() -> None:
    pages = [f"docs/{name}.md" for name in ("install", "settings", "sign-in", "kafka")]
    for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/README.md", *pages):
        links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text())
        assert [link for link in links if not (ROOT / document).parent.joinpath(link).exists()] == []


def test_every_command_the_operators_pages_name_is_there() -> None:
    """`manage.py NAME`, and each flag that stands behind it."""
    own = {path.stem for folder in ("console", "ingest") for path in (ROOT / folder).rglob("management/commands/*.py")}
    for document in ("README.md", "deploy/README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))):
        text = (ROOT / document).read_text()
        named = re.findall(r"manage\.py ([a-z_]+)((?: --[a-z-]+(?: [A-Z][A-Z_]*)?)*)", text)
        for command, flags in named:
            assert command in own | {"migrate", "check", "up", "demo", "makemigrations", "changepassword"}, (
                f"{document}: manage.py {command}"
            )
            if command in own:
                (path,) = (
                    one for folder in ("console", "ingest") for one in (ROOT / folder).rglob(f"commands/{command}.py")
                )
                assert [flag for flag in re.findall(r"--[a-z-]+", flags) if f'"{flag}"' not in path.read_text()] == []
