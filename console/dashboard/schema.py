"""OpenAPI schemas of answers, derived from the dataclasses that are answered, so that the two cannot differ."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Final

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    Any: {},
    type(None): {"type": "null"},
}

ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
}


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a dataclass or of a type its fields may have."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return an_object(**{field.name: hints[field.name] for field in dataclasses.fields(kind)})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if origin is typing.Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in inner]}
    raise TypeError(f"no schema for {kind!r}")


def an_object(**fields: Any) -> Schema:
    """The schema of an object with these fields: types, dataclasses, or schemas already made."""
    properties = {name: kind if isinstance(kind, dict) else schema_of(kind) for name, kind in fields.items()}
    return {"type": "object", "required": list(properties), "properties": properties}
