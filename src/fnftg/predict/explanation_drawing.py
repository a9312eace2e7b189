"""Drawings of explanations: the ego-graphs of query and candidate side by side, as self-contained SVG.

The width of an edge shows its effect on the score, and the colour shows the sign: blue supports the answer, orange
counts against it. Arrows point from head to tail. Words are coloured in the same way.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from textwrap import wrap

from fnftg.predict.explanation import EdgeReason, Explanation, Side, WordReason

FOR, AGAINST, INK, FAINT, LINE = "#0072B2", "#D55E00", "#222222", "#6B6B6B", "#C9C9C9"
DRAWN = 20  # neighbours drawn per centre
MARGIN, NAMES, HEADER, WORDS_WIDTH = 24, 190, 110, 100  # pixels beside a circle of neighbours; characters of a line
CENTRE, NODE, THIN, WIDE = 48, 6, 1.0, 9.0  # radii; the widths of edges
STYLE = "font-family: system-ui, 'DejaVu Sans', sans-serif"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML 1.0 does not allow


def drawing(found: Explanation) -> str:
    """Draw an explanation as an SVG document."""
    name, relation = shown(found.query.entity.name), shown(found.relation.name)
    query = f"({name}, {relation}, ?)" if found.asked == "tail" else f"(?, {relation}, {name})"
    sides = [
        (f"Query: {query}", found.query),
        (f"Answer: {shown(found.candidate.entity.name)}", found.candidate),
    ]
    most = max((abs(edge.effect) for _, side in sides for edge in side.edges), default=0.0)
    most_words = max((abs(word.effect) for _, side in sides for word in side.words), default=0.0)
    radius = max(220, 17 * max(min(len(side.edges), DRAWN) for _, side in sides))
    width, height = 2 * (radius + NAMES), 2 * radius + 90
    text_height = 46 + 19 * max(len(lines_of(side.words)) for _, side in sides)
    total_width, total_height = 2 * width + 3 * MARGIN, HEADER + height + text_height + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
        f'viewBox="0 0 {total_width} {total_height}" style="{STYLE}">',
        f'<rect width="{total_width}" height="{total_height}" fill="#FFFFFF"/>',
        arrowheads(),
        text(MARGIN, 36, triple_words(found), size=20, weight="bold"),
        text(MARGIN, 62, outcome(found), size=14, colour=FAINT),
    ]
    for place, (title, side) in enumerate(sides):
        left = MARGIN + place * (width + MARGIN)
        parts.append(text(left, HEADER - 14, cut(title, 90), size=15, weight="bold"))
        parts += panel(side, left + width / 2, HEADER + height / 2, radius, most)
        parts += words_of(side, left, HEADER + height + 20, most_words)
    parts += [legend(MARGIN, total_height - 18), "</svg>"]
    return "\n".join(parts) + "\n"


def triple_words(found: Explanation) -> str:
    return f"{shown(found.head.name)}  —  {shown(found.relation.name)}  →  {shown(found.tail.name)}"


def outcome(found: Explanation) -> str:
    """Describe score and rank in a sentence."""
    words = [f"Rank {found.rank:,g} of {found.candidates:,}, score {found.score:.3f}"]
    if found.probability is not None:
        words.append(f"true with probability {found.probability:.3f}")
    if found.conditional is not None:
        words.append(f"probability {found.conditional:.3f} given that the query has an answer")
    if found.hidden:
        words.append("the triple is in the graph and was hidden, as in evaluation")
    elif found.in_graph:
        words.append("the triple is in the graph and was not hidden")
    return ", ".join(words) + "."


def panel(side: Side, x: float, y: float, radius: float, most: float) -> list[str]:
    """Draw one ego-graph around (x, y)."""
    edges = side.edges[:DRAWN]
    lines, nodes = [], []
    for place, edge in enumerate(edges):
        angle = 2 * math.pi * (place + 0.5) / len(edges) - math.pi / 2
        spoke, name = neighbour(edge, x, y, angle, radius, most)
        lines += spoke
        nodes += name
    own = None if side.own_attention is None else f"itself {mean(side.own_attention):.0%}"
    nodes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{CENTRE}" fill="#F4F4F4" stroke="{INK}" stroke-width="1.5"/>')
    rows = wrap(shown(side.entity.name), 10)[:3] or [""]
    start = y - 7.5 * (len(rows) - 1) + (0 if own else 4)
    nodes += [
        text(x, start + 15 * row, words, size=12, weight="bold", anchor="middle") for row, words in enumerate(rows)
    ]
    if own:
        nodes.append(text(x, y + CENTRE - 13, own, size=10, colour=FAINT, anchor="middle"))
    more = side.edges[DRAWN:]
    if more:
        strongest = max(abs(edge.effect) for edge in more)
        words = f"and {len(more):,} more, none of which changes the score by more than {strongest:.3g}"
        nodes.append(text(x, y + radius + 38, words, size=12, colour=FAINT, anchor="middle"))
    if not edges:
        nodes.append(text(x, y + CENTRE + 34, "no edges", size=12, colour=FAINT, anchor="middle"))
    return lines + nodes


def neighbour(
    edge: EdgeReason, x: float, y: float, angle: float, radius: float, most: float
) -> tuple[list[str], list[str]]:
    """Draw an edge with its label, and the neighbour with its name."""
    cos, sin = math.cos(angle), math.sin(angle)
    width = THIN + (WIDE - THIN) * (abs(edge.effect) / most if most else 0)
    colour = FOR if edge.effect >= 0 else AGAINST
    inner, outer = CENTRE + 6, radius - NODE - 6
    ends = [(x + cos * inner, y + sin * inner), (x + cos * outer, y + sin * outer)]
    if edge.edge.direction == "in":
        ends.reverse()
    (x1, y1), (x2, y2) = ends
    marker = "for" if edge.effect >= 0 else "against"
    label = shown(edge.edge.relation).strip()
    middle = (inner + outer) / 2 + 14
    turn = math.degrees(angle)
    turn = turn - 180 if cos < 0 else turn
    at_x, at_y = x + cos * middle, y + sin * middle
    lines = [
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-opacity="0.75" '
        f'stroke-width="{width:.2f}" marker-end="url(#{marker})"/>',
        f'<g transform="translate({at_x:.1f} {at_y:.1f}) rotate({turn:.1f})">'
        + text(0, -width / 2 - 3, cut(label, int((outer - inner) / 6.4)), size=11, anchor="middle", halo=True)
        + "</g>",
    ]
    out_x, out_y = x + cos * radius, y + sin * radius
    anchor, shift = ("start", NODE + 5) if cos >= 0 else ("end", -NODE - 5)
    said = f"{edge.effect:+.3g}"
    if edge.mean_attention is not None:
        said += f", attention {edge.mean_attention:.0%}"
    nodes = [
        f'<circle cx="{out_x:.1f}" cy="{out_y:.1f}" r="{NODE}" fill="{colour}"/>',
        text(out_x + shift, out_y, cut(edge.neighbour.name, 26), size=12, anchor=anchor),
        text(out_x + shift, out_y + 14, said, size=11, colour=FAINT, anchor=anchor),
    ]
    return lines, nodes


def words_of(side: Side, left: float, top: float, most: float) -> list[str]:
    """Draw the text, with each word in the colour of its effect."""
    if not side.words:
        return [text(left, top, "The text has a single word.", size=12, colour=FAINT)]
    parts = [text(left, top, "The text, coloured by the effect of each word on the score:", size=12, colour=FAINT)]
    for row, line in enumerate(lines_of(side.words)):
        spans = "".join(span(word, abs(word.effect) / most if most else 0) for word in line)
        parts.append(
            f'<text x="{left}" y="{top + 22 + 19 * row:.1f}" font-size="14" xml:space="preserve">{spans}</text>'
        )
    return parts


def span(word: WordReason, strength: float) -> str:
    colour, weight = mixed(FOR if word.effect >= 0 else AGAINST, strength), "bold" if strength > 0.5 else "normal"
    return f'<tspan fill="{colour}" font-weight="{weight}">{clean(word.word)} </tspan>'


def lines_of(words: list[WordReason]) -> list[list[WordReason]]:
    lines: list[list[WordReason]] = [[]]
    length = 0
    for word in words:
        if length + len(word.word) > WORDS_WIDTH - 25 and lines[-1]:
            lines.append([])
            length = 0
        lines[-1].append(word)
        length += len(word.word) + 1
    return lines


def arrowheads() -> str:
    """Define arrowheads of one size, whatever the width of the line."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="13" markerHeight="13" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for name, colour in (("for", FOR), ("against", AGAINST))
    )
    return f"<defs>{heads}</defs>"


def legend(x: float, y: float) -> str:
    said = "Raises the score of the answer.", "Lowers the score of the answer."
    at, parts = x, []
    for colour, words in zip((FOR, AGAINST), said, strict=True):
        parts.append(f'<line x1="{at}" y1="{y - 4}" x2="{at + 30}" y2="{y - 4}" stroke="{colour}" stroke-width="6"/>')
        parts.append(text(at + 38, y, words, size=12))
        at += 60 + 6.6 * len(words)
    parts.append(
        text(
            at,
            y,
            "Line width and first figure: effect on the score. Second figure: attention of the centre.",
            size=12,
            colour=FAINT,
        )
    )
    return "\n".join(parts)


# Bits of SVG


def text(
    x: float,
    y: float,
    words: str,
    size: int,
    colour: str = INK,
    weight: str = "normal",
    anchor: str = "start",
    halo: bool = False,
) -> str:
    """Draw a line of text. With `halo`, a white copy below keeps it legible (few viewers support paint-order)."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    below = f'<text {place} fill="none" stroke="#FFFFFF" stroke-width="3" aria-hidden="true">{clean(words)}</text>'
    return (below if halo else "") + f'<text {place} fill="{colour}">{clean(words)}</text>'


def clean(words: str) -> str:
    """Escape the text and remove the characters that XML does not allow."""
    return html.escape(NOT_XML.sub("�", words))


def shown(name: str) -> str:
    """Replace the underscores of a name by blanks."""
    return cut(name.replace("_", " "), 60)


def cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def mixed(colour: str, share: float) -> str:
    """Mix a colour with grey."""
    one, other = (tuple(int(code[at : at + 2], 16) for at in (1, 3, 5)) for code in (FAINT, colour))
    return "#" + "".join(f"{round(a + (b - a) * min(share, 1)):02X}" for a, b in zip(one, other, strict=True))


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)
