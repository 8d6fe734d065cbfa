"""Answers that lie packed: sent as they are to whoever takes gzip, as all browsers do."""

from __future__ import annotations

import gzip

from django.http import HttpResponse
from rest_framework.request import Request


def packed_answer(request: Request, packed: bytes) -> HttpResponse:
    """Gzipped JSON, unpacked for whoever cannot."""
    takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    body = packed if takes_gzip else gzip.decompress(packed)
    coding = {"Content-Encoding": "gzip"} if takes_gzip else {}
    headers = {**coding, "Vary": "Accept-Encoding", "Cache-Control": "private, no-cache"}
    return HttpResponse(body, content_type="application/json", headers=headers)
