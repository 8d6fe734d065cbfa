"""The web process: Django for pages and REST, Channels for the live socket, ingest mounted at /ingest/.

Ingest usually runs as its own process; it is mounted here too, so that one address is enough for a small set-up. It is
the only one of the three with start-up and shutdown work, so the lifespan belongs to it.
"""

from __future__ import annotations

import os
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
_django = get_asgi_application()  # first: what follows imports models

from console.incidents.routing import websocket_urlpatterns  # noqa: E402
from ingest.asgi import application as _ingest  # noqa: E402

_console = ProtocolTypeRouter(
    {
        "http": _django,
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Route by protocol and path."""
    if scope["type"] == "lifespan" or scope.get("path", "").startswith("/ingest/"):
        await _ingest(scope, receive, send)
    else:
        await _console(scope, receive, send)
