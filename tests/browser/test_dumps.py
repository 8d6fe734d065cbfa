"""Dumps as people see them: stacks arrive on the open page and change the verdict, and a dropped zip is diagnosed."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from console.dumps import bundles
from console.dumps.models import Bundle
from console.incidents.watching.watch import watch_dumps, watch_job
from ingest.door.dumps import requests_of, store_dumps
from ingest.models import Attempt, DumpRequest
from nccl_instrument.dumps import RECORDER, STACKS, Dumps, Part
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import NODES, Stack
from tests.browser.test_accessibility import violations
from tests.rca.flight_recorder.real import FOLDER
from tests.rca.stacks.real import raw_dumps

pytestmark = pytest.mark.browser
STUCK = 3
BOOT = "ab" * 16


def test_stacks_arrive_on_the_open_page_and_say_where_the_culprit_is(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}?tab=stacks")
    page.evaluate("window.notReloaded = true")
    expect(page.locator(".dumps-bar")).to_contain_text("0 of 4 nodes answered")
    expect(page.get_by_role("button", name="Take dumps again")).to_be_disabled()
    stack.do(_answer)
    expect(page.locator(".dumps-bar")).to_contain_text("4 of 4 nodes answered")
    first = page.locator(".stack-class").first
    expect(first).to_contain_text("Data loader")
    expect(first).to_contain_text(f"rank {STUCK}")
    expect(page.locator(".agreement .layer")).to_contain_text("data loader")
    page.locator(".rank-block", has_text=re.compile(f"^{STUCK}")).first.click()
    expect(page.locator(".difference .only-here").first).to_be_visible()
    page.get_by_label("against rank").fill("0")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".rank-stacks")).to_contain_text("Against rank 0")
    assert page.evaluate("window.notReloaded")
    assert not violations(page)
    page.get_by_role("tab", name="Flight Recorder").click()
    expect(page.locator(".recorder .silent-ranks")).to_contain_text("no answer within the time")
    assert not violations(page)


def test_a_dropped_zip_is_diagnosed_at_an_address_that_can_be_sent(
    stack: Stack, open_as: OpenAs, settings: Any, tmp_path: Path
) -> None:
    settings.BUNDLES_FOLDER = tmp_path
    page = open_as("rita", "/")
    page.keyboard.press("b")
    page.get_by_label("Drop a zip here").set_input_files(FOLDER / "skip.zip")
    expect(page.get_by_role("status").filter(has_text="Waiting")).to_be_visible()
    stack.do(bundles.read, stack.do(lambda: Bundle.objects.get().key))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Rank 3")
    expect(page.locator("tr.standing-behind").first).to_contain_text("3")
    assert not violations(page)
    colleague = open_as("vera", page.url.removeprefix(stack.server.url), viewport=PHONE, theme="dark")
    expect(colleague.get_by_role("heading", level=1)).to_contain_text("Rank 3")
    assert colleague.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not violations(colleague)


def test_a_hostile_zip_is_refused_with_the_reason(stack: Stack, open_as: OpenAs, settings: Any, tmp_path: Path) -> None:
    settings.BUNDLES_FOLDER = tmp_path / "kept"
    (tmp_path / "evil.zip").write_bytes(b"this is no archive")
    page = open_as("rita", "/bundle")
    page.get_by_label("Drop a zip here").set_input_files(tmp_path / "evil.zip")
    expect(page.get_by_role("status").filter(has_text="Waiting")).to_be_visible()
    stack.do(bundles.read, stack.do(lambda: Bundle.objects.get().key))
    expect(page.get_by_text("This bundle was refused.")).to_be_visible()
    expect(page.locator(".empty")).to_contain_text("no zip archive that can be read")


def _answer() -> None:
    """Every node answers both looks: its ranks wait, STUCK loads; no recorder answers. Then the job is looked at."""
    attempt = Attempt.objects.select_related("job").get()
    request = requests_of(attempt.pk)[0]
    waits, loads = (_trainer(rank) for rank in (0, 1))
    for look in (1, 2):
        for node in range(NODES):
            parts = [_part(STACKS, rank, loads if rank == STUCK else waits) for rank in (2 * node, 2 * node + 1)]
            if RECORDER in request.kinds and look == 1:
                parts += [_part(RECORDER, rank, b"", "no answer within the time") for rank in (2 * node, 2 * node + 1)]
            store_dumps(attempt.job.team_id, Dumps("llama", f"node-{node}", BOOT, request.pk, look, tuple(parts)))
    DumpRequest.objects.filter(pk=request.pk).update(state="answered")
    watch_job(attempt.pk)
    watch_dumps(attempt.pk)


def _trainer(rank: int) -> bytes:
    """The real stack of a rank's trainer: rank 1's sample never comes, the others wait for it."""
    return next(
        raw
        for name, raw in raw_dumps().items()
        if name.startswith(f"r{rank}_") and name.endswith("_1.json") and b"_worker_loop" not in raw
    )


def _part(kind: str, rank: int, raw: bytes, silent: str = "") -> Part:
    packed = zlib.compress(raw) if raw else b""
    return Part(kind, rank, 4000 + rank, 0, "python train.py", 1_000, silent, "", len(raw), packed)
