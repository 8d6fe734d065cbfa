"""The one door that ticket systems call: no session, no token, a signature instead."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from console.operations.metrics import HOOKS_REFUSED
from console.tickets.hooks import BODY_BYTES_MAX, BadCall, take
from console.tickets.models import Destination


@method_decorator(csrf_exempt, name="dispatch")
class PagerDutyHook(View):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, key: UUID) -> JsonResponse:
        """202 for what was taken, or taken before; what is refused says little: the caller may be anybody."""
        destination = Destination.objects.filter(key=key, kind="pagerduty", removed_at=None).first()
        if destination is None or not _is_small(request.META):
            HOOKS_REFUSED.labels("unknown" if destination is None else "too large").inc()
            status = 404 if destination is None else 413
            return JsonResponse({"error": "Not taken.", "code": "not_taken"}, status=status)
        try:
            done = take(destination, request.body, request.headers)
        except BadCall as error:
            return JsonResponse({"error": "Not taken.", "code": "not_taken"}, status=error.status)
        return JsonResponse({"done": done}, status=202)


def _is_small(meta: dict[str, Any]) -> bool:
    length = str(meta.get("CONTENT_LENGTH") or "")
    return length.isdigit() and len(length) < 10 and int(length) <= BODY_BYTES_MAX
