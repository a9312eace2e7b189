"""A drawing on a white sheet, written as SVG: readable on light and dark pages, with the reader's own fonts.

The same calls give the same bytes, on every machine.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

INK, SOFT, LINE, SHEET = "#1b2424", "#5a6666", "#d5d9d6", "#ffffff"
TEAL, TEAL_SOFT = "#0d6b63", "#e2f0ed"  # the page of `fnftg serve` has the same colours
BLUE, BLUE_SOFT = "#0a67a8", "#e1eef8"
AMBER, AMBER_SOFT = "#8a5a00", "#fdf1d3"
RED, RED_SOFT = "#a8321e", "#fbece8"
GREY_SOFT = "#f3f4f2"
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"

Attribute = str | float | None


class Drawing:
    """Shapes and texts in the order in which they were added; x grows to the right, y downwards."""

    def __init__(self, width: float, height: float, description: str) -> None:
        self.width, self.height, self.description = width, height, description
        self.parts: list[str] = []
        self.arrow_colours: list[str] = []

    def add(self, tag: str, content: str | None = None, **attributes: Attribute) -> None:
        given = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{value if isinstance(value, str) else f"{value:g}"}"'
            for name, value in attributes.items()
            if value is not None
        )
        self.parts.append(f"<{tag}{given}/>" if content is None else f"<{tag}{given}>{escape(content, False)}</{tag}>")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 14,
        colour: str = INK,
        anchor: str = "start",
        bold: bool = False,
        italic: bool = False,
        turned: float = 0,
    ) -> None:
        """Words whose baseline is at y; `anchor` says which end of them is at x: start, middle or end."""
        self.add(
            "text",
            words,
            x=x,
            y=y,
            font_size=size,
            fill=colour,
            text_anchor=None if anchor == "start" else anchor,
            font_weight="600" if bold else None,
            font_style="italic" if italic else None,
            transform=f"rotate({turned:g} {x:g} {y:g})" if turned else None,
        )

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, stroke: str = LINE, dashed: bool = False
    ) -> None:
        dashes = "6 4" if dashed else None
        self.add("rect", x=x, y=y, width=width, height=height, rx=8, fill=fill, stroke=stroke, stroke_dasharray=dashes)

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str) -> None:
        self.add("circle", cx=x, cy=y, r=radius, fill=fill, stroke=stroke, stroke_width=1.5)

    def path(
        self, d: str, colour: str = SOFT, width: float = 1.8, arrow: bool = False, dashes: str | None = None
    ) -> None:
        """A line along the SVG path `d`, with an arrowhead at its end if wanted."""
        if arrow and colour not in self.arrow_colours:
            self.arrow_colours.append(colour)
        marker = f"url(#arrow-{colour.lstrip('#')})" if arrow else None
        self.add(
            "path", d=d, fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dashes, marker_end=marker
        )

    def svg(self) -> str:
        markers = "".join(
            f'<marker id="arrow-{colour.lstrip("#")}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9"'
            f' markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z"'
            f' fill="{colour}"/></marker>'
            for colour in self.arrow_colours
        )
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}"'
            f' width="{self.width:g}" height="{self.height:g}"'
            f' font-family="{FONTS}" role="img" aria-label="{escape(self.description)}">',
            *([f"<defs>{markers}</defs>"] if markers else []),
            f'<rect x="0.5" y="0.5" width="{self.width - 1:g}" height="{self.height - 1:g}" rx="12" fill="{SHEET}"'
            f' stroke="{LINE}"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def save(self, path: Path) -> None:
        path.write_text(self.svg(), encoding="utf-8")
