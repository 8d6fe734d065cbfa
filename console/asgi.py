"""The web process: Django for pages and REST, Channels for the live socket, ingest mounted at /ingest/, and probes.

Ingest usually runs as its own process; it is mounted here too, so that one address is enough for a small set-up. It is
the only one of the three with start-up and shutdown work, so the lifespan belongs to it.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

TARGETS = "/metrics/targets"
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
_django = get_asgi_application()  # first: what follows imports models

from console.dumps.uploads import Uploads  # noqa: E402
from console.incidents.routing import websocket_urlpatterns  # noqa: E402
from console.operations.alive import targets  # noqa: E402
from console.operations.metrics import count_request  # noqa: E402
from console.operations.needs import needs_of  # noqa: E402
from ingest.asgi import application as _ingest  # noqa: E402
from ingest.log_context import name_requests  # noqa: E402
from ingest.operations import PATHS, Operations, serve  # noqa: E402

OPERATIONS = Operations(needs_of("web"), pages={TARGETS: targets})

_console = ProtocolTypeRouter(
    {
        "http": Uploads(_django),
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)


async def _route(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """Route by protocol and path. Probes come before Django: they call us by an address, not by a host name."""
    if scope["type"] == "lifespan" or scope.get("path", "").startswith("/ingest/"):
        await _ingest(scope, receive, send)
    elif scope["type"] == "http" and scope["path"] in (*PATHS, TARGETS):
        await serve(OPERATIONS, scope, send)
    elif scope["type"] == "http":
        with count_request(scope["method"], send) as counting:
            await _console(scope, receive, counting)
    else:
        await _console(scope, receive, send)


application = name_requests(_route)
"""The ASGI callable."""
