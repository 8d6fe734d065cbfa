"""Static files go out under ASGI whole and without Django's warning of iterators it has to read in a thread."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import AsyncClient, Client

PATH = "drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css"


@pytest.fixture
def content() -> bytes:
    found = finders.find(PATH)
    assert isinstance(found, str)
    with open(found, "rb") as file:
        return file.read()


async def test_a_file_is_sent_whole_and_without_a_warning(content: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        response: Any = await AsyncClient().get(f"/static/{PATH}")
        assert b"".join([part async for part in response]) == content
    response.close()


def test_it_is_sent_without_asgi_too(content: bytes) -> None:
    response: Any = Client().get(f"/static/{PATH}")
    assert b"".join(response) == content
