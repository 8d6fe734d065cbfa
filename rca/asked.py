"""Asking rules one after the other: one that fails is left out and told of.

A diagnosis is read while a job hangs. A mistake in one rule must not cost it what the others know; it is logged with all that
is known of it, and `missing` says that the rule was not heard. Tests let it fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from rca.findings import Finding

log = logging.getLogger(__name__)

MISTAKES: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What mistakes in a rule look like. Not everything: a worker whose time is over is told so by an exception, too."""

fails_loudly = False
"""Whether a rule's mistake ends the diagnosis, as in tests."""


class Asking:
    """Asks rules that are `given` the same. failed: a sentence for each that failed."""

    def __init__(self, *given: Any) -> None:
        self._given = given
        self.failed: list[str] = []

    def ask(self, rule: Callable[..., Iterable[Finding]]) -> tuple[Finding, ...]:
        """What the rule says; nothing where it fails."""
        try:
            return tuple(rule(*self._given))
        except MISTAKES as error:
            if fails_loudly:
                raise
            name = rule.__module__.rpartition(".")[2]
            log.exception("the rule %s failed", name)
            self.failed.append(f"The rule {name} failed ({type(error).__name__}) and was not heard; the log says more.")
            return ()
