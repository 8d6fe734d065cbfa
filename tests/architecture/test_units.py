"""The systemd units start what `manage.py up` starts, with the same care for who a client says it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from console.supervisor.processes import web_recipe

UNITS = Path(__file__).parents[2] / "deploy"
PROXIES = ["--forwarded-allow-ips", "${DIOGENES_TRUSTED_PROXIES}"]


def command(unit: str) -> list[str]:
    lines = (UNITS / unit).read_text().splitlines()
    (found,) = [line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")]
    return found.split()


def test_web_believes_the_named_proxies_only() -> None:
    at = command("diogenes-web.service").index(PROXIES[0])
    assert command("diogenes-web.service")[at : at + 2] == PROXIES
    assert "\nEnvironment=DIOGENES_TRUSTED_PROXIES=\n" in (UNITS / "diogenes-web.service").read_text()


async def test_with_none_named_nobody_is_believed_on_the_same_machine_either() -> None:
    heard = []

    async def application(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        heard.append(scope["client"][0])

    scope = {"type": "http", "client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"10.1.1.1")]}
    await ProxyHeadersMiddleware(application, "")(scope, None, None)  # type: ignore[arg-type]
    assert heard == ["127.0.0.1"]


@pytest.mark.parametrize("flag", ["--http", "--ws-max-size", "--no-access-log"])
def test_web_is_started_with_the_flags_of_the_supervisor(flag: str) -> None:
    recipe = list(web_recipe(8000).argv)
    unit = command("diogenes-web.service")
    size = 1 if flag == "--no-access-log" else 2
    assert unit[unit.index(flag) :][:size] == recipe[recipe.index(flag) :][:size]
