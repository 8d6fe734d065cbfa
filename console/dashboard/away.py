"""What a page or script is told while the database does not answer: that it is away, not that we have a bug.

503 with Retry-After, in one sentence; a page that is opened meanwhile asks again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.loader import render_to_string

AGAIN_SECONDS: Final = 5
SENTENCE: Final = "The database does not answer. Agents keep what they trace; nothing acknowledged is lost."


class DatabaseAway:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer where a view met no database; None for every other error."""
        if not isinstance(error, OperationalError | InterfaceError):
            return None
        headers = {"Retry-After": str(AGAIN_SECONDS), "Cache-Control": "no-store"}
        if request.path.startswith("/api/"):
            return JsonResponse({"error": SENTENCE, "code": "database_away"}, status=503, headers=headers)
        given = {"request": request, "sentence": SENTENCE, "again_seconds": AGAIN_SECONDS}
        return HttpResponse(render_to_string("503.html", given), status=503, headers=headers)
