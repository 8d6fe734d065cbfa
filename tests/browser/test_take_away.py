"""What is taken away from an incident, in the browser: a bundle built and downloaded, a post-mortem read and saved."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from console.evidence import building
from console.evidence.models import EvidenceBundle
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack
from tests.browser.test_accessibility import violations_in_both_themes

pytestmark = pytest.mark.browser
PICTURES = os.environ.get("PICTURES")


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "EVIDENCE_FOLDER", tmp_path / "evidence")


def test_a_bundle_is_built_and_downloaded_and_the_draft_saved(stack: Stack, open_as: OpenAs, tmp_path: Path) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}?tab=take")
    expect(page.get_by_text("rank-hours", exact=False).last).to_be_visible()
    page.get_by_role("button", name="Build a bundle").click()
    expect(page.get_by_text("waits for a worker")).to_be_visible()
    picture(page, "take-building")
    stack.do(lambda: building.build(EvidenceBundle.objects.get().pk))
    button = page.get_by_role("button", name="Download (")
    expect(button).to_be_visible()
    with page.expect_download() as taken:
        button.click()
    with zipfile.ZipFile(saved(taken.value, tmp_path / "evidence.zip")) as archive:
        assert {"window.npz", "trace.json", "post-mortem.md", "pictures/flows.svg"} <= set(archive.namelist())
    with page.expect_download() as taken:
        page.get_by_role("button", name="Download .md").click()
    assert "# Post-mortem of incident" in saved(taken.value, tmp_path / "draft.md").read_text()
    assert violations_in_both_themes(page) == []
    picture(page, "take-dark")
    phone = open_as("vera", f"/incidents/{incident.pk}?tab=take", viewport=PHONE)
    expect(phone.get_by_text("Responders build and download bundles.")).to_be_visible()
    expect(phone.get_by_role("button", name="Build a bundle")).to_have_count(0)
    picture(phone, "take-phone")
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def saved(download: Any, path: Path) -> Path:
    download.save_as(path)
    return path
