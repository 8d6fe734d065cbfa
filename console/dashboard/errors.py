"""Domain errors as HTTP answers: {"error": a sentence, "code": a slug}, with the current row if somebody was faster."""

from __future__ import annotations

import dataclasses
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import Http404
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler, set_rollback

from console.incidents.lifecycle import BadAct, IllegalMove, StaleVersion, TooMany
from console.incidents.rows import incident_row

NOT_FOUND = "There is nothing here, or it belongs to another team."
FORBIDDEN = "Your role does not allow this."


def answer_error(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to an error a view raised; None for a bug, which crashes into a 500."""
    answer = _domain_answer(error)
    if answer is not None:
        set_rollback()
        return answer
    response: Response | None = exception_handler(error, context)
    if response is not None and isinstance(error, APIException):
        response.data = _api_error(error)
    return response


def _domain_answer(error: Exception) -> Response | None:
    if isinstance(error, Http404 | ObjectDoesNotExist):
        return Response({"error": NOT_FOUND, "code": "not_found"}, 404)
    if isinstance(error, PermissionDenied):
        return Response({"error": str(error) or FORBIDDEN, "code": "forbidden"}, 403)
    if isinstance(error, BadAct):
        return Response({"error": str(error), "code": "bad_act"}, 400)
    if isinstance(error, TooMany):
        return Response(
            {"error": str(error), "code": "too_many"}, 429, headers={"Retry-After": str(error.retry_after_s)}
        )
    if isinstance(error, StaleVersion | IllegalMove):
        code = "stale_version" if isinstance(error, StaleVersion) else "illegal_move"
        row = dataclasses.asdict(incident_row(error.incident))
        is_exact = isinstance(error, StaleVersion) and error.exact  # the header If-Match asked for it
        return Response({"error": str(error), "code": code, "incident": row}, 412 if is_exact else 409)
    return None


def _api_error(error: APIException) -> dict[str, Any]:
    if isinstance(error, ValidationError):
        return {"error": "Some fields are missing or wrong.", "code": "invalid", "fields": error.detail}
    codes = error.get_codes()
    return {"error": str(error.detail), "code": codes if isinstance(codes, str) else error.default_code}
