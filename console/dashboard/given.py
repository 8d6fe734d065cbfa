"""What a request brings: JSON within bounds, no field that nobody knows, no NUL, which PostgreSQL cannot store.

A field that is ignored is a misunderstanding nobody notices: whoever sends {"sate": "resolved"} should hear of it. JSON
nested deeper than Python can follow is a mistake of the sender, not a crash of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from rest_framework import serializers
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import JSONParser

UNKNOWN = "There is no such field."
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class NoNul:
    """Middleware: 400 for a NUL in a query or a form. JSON is checked by the fields that take it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = [request.GET, *([request.POST] if request.content_type in FORMS else [])]
        if any("\0" in text for fields in given for name, texts in fields.lists() for text in (name, *texts)):
            return JsonResponse({"error": "There is a NUL in the request.", "code": "bad_text"}, status=400)
        return self.get_response(request)


class BoundedJSON(JSONParser):
    """REST framework's parser, which would crash on deep nesting."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error


class Fields(serializers.Serializer[Any]):
    """The fields of a request; 400 for those it does not have."""

    def to_internal_value(self, given: Any) -> Any:
        unknown = sorted(set(map(str, given)) - set(self.fields)) if isinstance(given, Mapping) else []
        if unknown:
            raise ValidationError({name[:100]: [UNKNOWN] for name in unknown[:20]})
        return super().to_internal_value(given)
