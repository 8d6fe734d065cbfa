"""Which incidents a silence covers: matchers on what an incident says of itself.

A matcher names a field and values, of which one must fit; `*` in a value stands for any characters. A silence covers what
every one of its matchers fits, and has at least one that does not merely exclude. Unknown is never silenced: while
nobody is blamed no node fits, and of several blamed nodes all must. Plain Python, so that preview, page and worker agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from rca.findings import Component, SymptomKind

FIELDS: Final = ("job", "node", "rack", "cluster", "symptom", "component", "incident")
PLACES: Final = frozenset({"node", "rack", "cluster"})
"""Fields that say where; a maintenance names one."""
CODES: Final[dict[str, tuple[str, ...]]] = {"symptom": tuple(SymptomKind), "component": tuple(Component)}
MATCHERS_MAX: Final = 10
VALUES_MAX: Final = 100
VALUE_CHARS_MAX: Final = 200


class BadMatcher(ValueError):
    """The matchers cannot be understood, or would silence everything; the message says why."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """`field` is one of `values` (or, with `is_not`, none of them)."""

    field: str
    values: tuple[str, ...]
    is_not: bool = False

    @property
    def names_something(self) -> bool:
        """Whether it says what is silenced: values of nothing but `*` fit all there is."""
        return not self.is_not and all(value.strip("*") for value in self.values)

    @property
    def words(self) -> str:
        sign = "is not" if self.is_not else "is"
        return f"{self.field} {sign} {' or '.join(self.values)}"


def read_matchers(raw: Any) -> tuple[Matcher, ...]:
    """Matchers as they were sent. Raises BadMatcher."""
    if not isinstance(raw, list) or not 1 <= len(raw) <= MATCHERS_MAX:
        raise BadMatcher(f"A silence has 1 to {MATCHERS_MAX} matchers.")
    matchers = tuple(_read_one(one) for one in raw)
    if all(matcher.is_not for matcher in matchers):
        raise BadMatcher("At least one matcher must say what is silenced: excluding alone silences all the rest.")
    if not any(matcher.names_something for matcher in matchers):
        raise BadMatcher("This would silence everything: at least one matcher needs values that are more than *.")
    for matcher in matchers:
        _check_codes(matcher)
    return matchers


def stored_matchers(raw: Any) -> tuple[Matcher, ...]:
    """Matchers of a silence that was made, by whatever rule then held: they cover what they did."""
    return tuple(_read_one(one) for one in raw)


def matchers_to_json(matchers: Sequence[Matcher]) -> list[dict[str, Any]]:
    return [{"field": one.field, "values": list(one.values), "is_not": one.is_not} for one in matchers]


def fits(matchers: Sequence[Matcher], said: Mapping[str, Sequence[str]]) -> bool:
    """Whether every matcher fits. `said`: field → what the incident says; nothing where it is not known."""
    return all(_fits_one(matcher, said.get(matcher.field, ())) for matcher in matchers)


def _fits_one(matcher: Matcher, said: Sequence[str]) -> bool:
    if not said:
        return False
    found = [any(fnmatchcase(one, _pattern(value)) for value in matcher.values) for one in said]
    return not any(found) if matcher.is_not else all(found)


def _check_codes(matcher: Matcher) -> None:
    """A word that is no code would silence nothing, and nobody would notice."""
    codes = CODES.get(matcher.field)
    for value in matcher.values if codes else ():
        if codes and not any(fnmatchcase(code, _pattern(value)) for code in codes):
            raise BadMatcher(f"There is no {matcher.field} {value!r}: it is one of {', '.join(codes)}.")


def _pattern(value: str) -> str:
    """Of fnmatch's signs only `*` means something: names may have brackets and question marks."""
    return value.replace("[", "[[]").replace("?", "[?]")


def _read_one(raw: Any) -> Matcher:
    if not isinstance(raw, Mapping) or set(raw) - {"field", "values", "is_not"}:
        raise BadMatcher("A matcher has a field, values and is_not.")
    field, values, is_not = raw.get("field"), raw.get("values"), raw.get("is_not", False)
    if field not in FIELDS:
        raise BadMatcher(f"A matcher's field is one of {', '.join(FIELDS)}.")
    if not isinstance(values, list) or not 1 <= len(values) <= VALUES_MAX:
        raise BadMatcher(f"A matcher has 1 to {VALUES_MAX} values.")
    if not isinstance(is_not, bool):
        raise BadMatcher("is_not is true or false.")
    return Matcher(str(field), tuple(_read_value(value) for value in values), is_not)


def _read_value(raw: Any) -> str:
    text = str(raw).strip() if isinstance(raw, str | int) and not isinstance(raw, bool) else ""
    if not 1 <= len(text) <= VALUE_CHARS_MAX or not text.isprintable():
        raise BadMatcher(f"A value has 1 to {VALUE_CHARS_MAX} characters.")
    if text.count("*") > 5:
        raise BadMatcher("At most five * in a value.")
    return text
