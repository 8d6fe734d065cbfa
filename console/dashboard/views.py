"""The shell of every page. What is on it comes over REST and the live socket."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe

NOT_BUILT: Final = "The front end is not built yet: run `make build`."


@never_cache
@login_required
@ensure_csrf_cookie
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Every page of the console: the same shell."""
    entry = _entry(settings.FRONTEND_DIST / ".vite" / "manifest.json")
    if entry is None:
        return HttpResponse(NOT_BUILT, status=503, content_type="text/plain")
    return render(request, "app.html", entry)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Below /api/ JSON, as all of its answers are. A page within the console for who is signed in; else a sheet."""
    if request.path.startswith("/api/"):
        said = "There is no such address in this API: see /api/v1/docs."
        return JsonResponse({"error": said, "code": "not_found"}, status=404)
    entry = _entry(settings.FRONTEND_DIST / ".vite" / "manifest.json")
    is_page = not request.path.startswith(settings.STATIC_URL) and request.user.is_authenticated
    if entry is None or not is_page:
        return render(request, "404.html", status=404)
    return render(request, "app.html", entry, status=404)


def _entry(manifest: Path) -> dict[str, Any] | None:
    """Script, styles and preloads of the entry in Vite's manifest, as static addresses; None before the first build."""
    try:
        return _read_entry(manifest, manifest.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=2)
def _read_entry(manifest: Path, changed_ns: int) -> dict[str, Any]:
    chunks = json.loads(manifest.read_text())
    entry = next(chunk for chunk in chunks.values() if chunk.get("isEntry"))
    imported = [chunks[name]["file"] for name in entry.get("imports", [])]
    static = settings.STATIC_URL
    return {
        "script": static + entry["file"],
        "styles": [static + name for name in entry.get("css", [])],
        "preloads": [static + name for name in imported],
    }
