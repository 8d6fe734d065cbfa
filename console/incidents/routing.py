"""Addresses of the live socket."""

from __future__ import annotations

from django.urls import path

from console.incidents.consumers import LiveConsumer

websocket_urlpatterns = [path("ws/v1/", LiveConsumer.as_asgi())]
