"""Equations become MathML while the site is built: browsers draw it by themselves, so no script is fetched."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)  # as pymdownx.arithmatex leaves them


def on_page_content(content: str, **_: Any) -> str:
    """The page with each equation drawn: those in a line of text, and those on a line of their own."""
    return EQUATION.sub(lambda found: drawn(found[1], html.unescape(found[2]).strip()), content)


def drawn(kind: str, latex: str) -> str:
    mathml: str = convert(latex[2:-2].strip(), display="block" if kind == "div" else "inline")
    return f'<div class="equation">{mathml}</div>' if kind == "div" else mathml
