"""Configs from nested fields, as they stand in JSON and YAML: what does not fit is named with its whole path."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

from fnftg.errors import FnftgError


def from_dict(kind: Any, values: Any, path: str = "") -> Any:
    """A config of the dataclass `kind` from nested fields; an unknown or ill-typed one is named with its whole path."""
    if not isinstance(values, dict):
        raise FnftgError(f"The config's {path or 'content'} must hold fields, not {values!r}.")
    hints = typing.get_type_hints(kind)
    if hasattr(kind, "field_types"):  # some fields decide on the type of others
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
            raise FnftgError(f"The config's field {where} cannot be {value!r}: it must be {_words(hint)}.")
        given[name] = value
    return kind(**given)


def _upon_default(kind: Any, name: str, hint: Any, value: Any) -> Any:
    """The fields of `value` upon those of the field's own default, which may differ from its type's."""
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    if not isinstance(value, dict) or field.default_factory is dataclasses.MISSING:
        return value
    default = field.default_factory()
    if type(default) is not hint:
        return value
    return {**{name: getattr(default, name) for name in _names(hint) if name not in value}, **value}


def _names(kind: Any) -> list[str]:
    """Fields that hold plain values; nested configs have defaults of their own."""
    hints = typing.get_type_hints(kind)
    return [name for name in hints if not dataclasses.is_dataclass(hints[name])]


def _number(value: Any, hint: Any) -> Any:
    """YAML takes 1e-3 for a word: where a number is meant, it is one."""
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
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_words, typing.get_args(hint)))
    if typing.get_origin(hint) is list:
        return f"a list of {_words(typing.get_args(hint)[0])}"
    return "nothing" if hint is type(None) else str(getattr(hint, "__name__", hint))
