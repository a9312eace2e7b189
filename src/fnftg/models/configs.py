"""Configs from nested fields, as read from JSON or YAML."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

from fnftg.errors import FnftgError

LARGEST = (1 << 63) - 1  # of whole numbers


def from_dict(kind: Any, values: Any, path: str = "") -> Any:
    """Create a config of the dataclass `kind` from nested fields.

    Args:
        kind: the dataclass.
        values: the fields; fields that are not given keep their defaults.
        path: dotted path of these fields in the whole config, for error messages.

    Raises:
        FnftgError: if a field is unknown or has the wrong type; the message has the field's dotted path.
    """
    if not isinstance(values, dict):
        raise FnftgError(f"The config's {path or 'content'} must hold fields, not {values!r}.")
    hints = typing.get_type_hints(kind)
    if hasattr(kind, "field_types"):  # the type of a field may depend on the value of another
        hints |= kind.field_types(values)
    given = {}
    for name, value in values.items():
        where = f"{path}.{name}" if path else name
        if name not in hints:
            raise FnftgError(f"The config has an unknown field {where}: {path or 'it'} has {', '.join(hints)}.")
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            given[name] = from_dict(hint, _upon_default(kind, name, hint, value), where)
            continue
        value = _number(value, hint)
        if not _fits(value, hint):
            raise FnftgError(f"The config's field {where} cannot be {_shown(value)}: it must be {_words(hint)}.")
        given[name] = value
    return kind(**given)


def with_former_values(model: dict[str, Any]) -> dict[str, Any]:
    """Return the saved fields of a model with those that older versions of fnftg lacked, so that it works as before."""
    evidence = model.get("evidence")
    if not isinstance(evidence, dict):
        return model
    return {**model, "evidence": {"mention_words": 0, **evidence}}  # up to 0.3, mentions were found in whole texts


def _upon_default(kind: Any, name: str, hint: Any, value: Any) -> Any:
    """Merge the fields of `value` into the default of the field `name`, which may differ from its type's default."""
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    if not isinstance(value, dict) or field.default_factory is dataclasses.MISSING:
        return value
    default = field.default_factory()
    if type(default) is not hint:
        return value
    return {**{name: getattr(default, name) for name in _names(hint) if name not in value}, **value}


def _names(kind: Any) -> list[str]:
    """Return the fields with plain values; nested configs have their own defaults."""
    hints = typing.get_type_hints(kind)
    return [name for name in hints if not dataclasses.is_dataclass(hints[name])]


def _number(value: Any, hint: Any) -> Any:
    """Convert strings such as 1e-3, which YAML does not parse as numbers, if the field is a float."""
    if isinstance(value, str) and float in (hint, *typing.get_args(hint)):
        try:
            return float(value)
        except ValueError:
            pass
    return value


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if hint is float:
        return isinstance(value, float) or _fits(value, int)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, hint)


def _shown(value: Any) -> str:
    is_huge = isinstance(value, int) and abs(value) > LARGEST  # repr refuses numbers of thousands of digits
    return f"a number above {LARGEST}" if is_huge else repr(value)


def _words(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_words, typing.get_args(hint)))
    if typing.get_origin(hint) is list:
        return f"a list of {_words(typing.get_args(hint)[0])}"
    return "nothing" if hint is type(None) else str(getattr(hint, "__name__", hint))
