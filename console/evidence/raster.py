"""Pictures for places that show no SVG: the same drawings as PNG, made here without a browser.

They stand on white paper, so they read alike where the page around them is dark. Letters need a font of the machine
(Debian: fonts-dejavu-core): without one a picture would say nothing, so none is made, and that is said.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import resvg_py

PIXELS_MAX: Final = 12_000_000
PNG_BYTES_MAX: Final = 2**20
SIDE_MAX: Final = 8_000
PROBE: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" font-family="sans-serif">{}</svg>'
)  # fmt: skip
FAMILIES: Final = ("DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica")
NO_FONT: Final = "this machine has no font to letter them with (Debian: fonts-dejavu-core)"
_SIZE: Final = re.compile(r'<svg [^>]*?width="(\d+)" height="(\d+)"')


class NoPicture(Exception):
    """It cannot be drawn here, with the reason."""


def png_of(svg: str) -> bytes:
    """The drawing twice as sharp as its size, or as it is when that is too large. Raises NoPicture.

    `svg` is one of ours (pictures.py): it names no file and no address.
    """
    family = font_family()
    if family is None:
        raise NoPicture(NO_FONT)
    found = _SIZE.match(svg)
    if found is None:
        raise NoPicture("it has no size")
    width, height = int(found[1]), int(found[2])
    for zoom in (2, 1):
        if width * height * zoom * zoom > PIXELS_MAX or max(width, height) * zoom > SIDE_MAX:
            continue
        made = _drawn(svg.replace("system-ui, sans-serif", family, 1), zoom)
        if len(made) <= PNG_BYTES_MAX:
            return made
    raise NoPicture(f"it is too large ({width} × {height})")


@lru_cache(maxsize=1)
def font_family() -> str | None:
    """A family of this machine that has letters; None when it has none."""
    empty = _drawn(PROBE.format(""), 1)
    for family in FAMILIES:
        lettered = f'<text y="15" font-family="{family}">Ag</text>'
        if _drawn(PROBE.format(lettered), 1) != empty:
            return family
    return None


def _drawn(svg: str, zoom: int) -> bytes:
    try:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom))
    except ValueError as error:
        raise NoPicture(str(error)) from error
