"""Static files in the form an ASGI server sends: WhiteNoise gives a plain iterator, which Django warns of and reads whole.

They are the built pages, a megabyte at most, so they are read whole here too, in a thread, knowingly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse


class StaticParts:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if isinstance(request, ASGIRequest) and isinstance(response, StreamingHttpResponse):
            content = response.streaming_content
            if isinstance(content, Iterable):
                response.streaming_content = _parts(content)
        return response


async def _parts(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in await sync_to_async(_read)(content):
        yield part


def _read(content: Iterable[bytes]) -> list[bytes]:
    return list(content)
