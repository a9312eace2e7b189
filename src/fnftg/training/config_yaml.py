"""Configs as YAML, with the description of each field from the dataclass docstring as a comment."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

WIDTH = 110


def to_yaml(config: Any, indent: str = "") -> str:
    """Return all fields of a config as YAML, including nested ones; reading it gives the same config.

    Examples:
        >>> print(to_yaml(TrainerConfig(devices=2)))
        # cpu, cuda, mps or auto.
        accelerator: auto
        …
    """
    described = field_descriptions(type(config))
    plain_first = sorted(
        dataclasses.fields(config), key=lambda field: dataclasses.is_dataclass(getattr(config, field.name))
    )
    lines = []
    for field in plain_first:
        value = getattr(config, field.name)
        comment = described.get(field.name, "")
        lines += textwrap.wrap(comment, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if dataclasses.is_dataclass(value):
            lines += [f"{indent}{field.name}:", to_yaml(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{field.name}: {_scalar(value)}")
    return "\n".join(lines)


def field_descriptions(kind: type[Any]) -> dict[str, str]:
    """Return the description of each field from the docstrings of a dataclass and its parents."""
    from docstring_parser import parse

    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        for parameter in parse(parent.__doc__ or "").params:
            found[parameter.arg_name] = " ".join((parameter.description or "").split())
    return found


def _scalar(value: Any) -> str:
    import yaml

    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
