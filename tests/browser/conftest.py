"""Headless Chromium on the real stack. Skipped, with a count, where there is no Chromium or no built front end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.stack import Server, Stack
from tests.ingest.conftest import no_traces

__all__ = ["no_traces"]  # a fixture
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FRONTEND = Path(__file__).parents[2] / "frontend"
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
expect.set_options(timeout=15_000)

OpenAs = Callable[..., Page]


@pytest.fixture
def stack(transactional_db: None, no_traces: None, valkey: object) -> Iterator[Stack]:
    """The running stack with three people and no job yet."""
    if not (FRONTEND / "dist" / ".vite" / "manifest.json").exists():
        pytest.skip("the front end is not built: make build")
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
    server = Server()
    server.start()
    stack = Stack(server)
    stack.prepare()
    yield stack
    stack.stop()


@pytest.fixture
def chrome(stack: Stack, chromium: str) -> Iterator[Browser]:
    """A browser of this test's own, gone before the stack stops."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_as(stack: Stack, chrome: Browser) -> Iterator[OpenAs]:
    """`open_as("rita", "/incidents")`: a page of somebody who is signed in. Page errors fail the test."""
    errors: list[str] = []
    contexts: list[BrowserContext] = []

    def open_page(name: str, path: str = "/", *, theme: str = "light", viewport: Any = None, wait: bool = True) -> Page:
        context = chrome.new_context(viewport=viewport or DESKTOP, color_scheme=theme)  # type: ignore[arg-type]
        contexts.append(context)
        context.add_cookies([{"name": "sessionid", "value": stack.cookies[name], "url": stack.server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(stack.server.url + path)
        if wait:
            expect(page.locator(".live")).to_have_text(re.compile("Live"))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors, errors
