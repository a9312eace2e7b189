"""The README's picture: from a graph with texts and a new entity, one sentence, to ranked links with probabilities."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from svg import BLUE, BLUE_SOFT, GREY_SOFT, INK, LINE, SHEET, SOFT, TEAL, TEAL_SOFT, Drawing

NODES = {  # entities of wordnet-animals: the middle of their boxes
    "Macropodidae": (82, 112),
    "kangaroo": (252, 112),
    "marsupial": (420, 112),
    "rock wallaby": (82, 212),
    "wallaby": (252, 212),
    "hare wallaby": (420, 212),
}
EDGES = [  # triples of wordnet-animals, as a path between two boxes, and where the relation's name is
    ("M140 112 H201", "member meronym", 171, 86),
    ("M303 112 H360", "hypernym", 332, 86),
    ("M252 195 V131", "hypernym", 261, 159),
    ("M140 212 H201", "hypernym", 171, 186),
    ("M362 212 H303", "hypernym", 332, 186),
]
TEXT = "“wallaby, brush kangaroo, any of various small or medium-sized …”"


def graph(drawing: Drawing) -> None:
    drawing.text(24, 36, "A graph with texts", 17, bold=True)
    drawing.text(24, 57, "here: the animals of WordNet", 13, SOFT)
    for path, relation, x, y in EDGES:
        drawing.path(path, BLUE, 1.8, arrow=True)
        drawing.text(x, y, relation, 12, SOFT, "start" if "V" in path else "middle")
    for name, (x, y) in NODES.items():
        half = 58 if x != 252 else 49
        drawing.box(x - half, y - 17, 2 * half, 34, BLUE_SOFT, BLUE)
        drawing.text(x, y + 5, name, 14, anchor="middle", bold=name == "wallaby")
    drawing.text(252, 248, TEXT, 12, SOFT, "middle", italic=True)


def new_entity(drawing: Drawing, text: str) -> None:
    drawing.text(24, 294, "A new entity: one sentence, no links", 17, bold=True)
    drawing.box(24, 308, 454, 64, TEAL_SOFT, TEAL, dashed=True)
    for row, words in enumerate(textwrap.wrap(f"“{text}”", 50)):
        drawing.text(42, 335 + 22 * row, words, 15)


def arrows(drawing: Drawing) -> None:
    for y in (112, 340):
        drawing.path(f"M484 {y} C 514 {y}, 498 222, 522 222", SOFT, 2.2)
    drawing.box(522, 186, 84, 72, TEAL, TEAL)
    drawing.text(564, 228, "fnftg", 18, SHEET, "middle", bold=True)
    drawing.path("M606 222 H636", SOFT, 2.2, arrow=True)


def links(drawing: Drawing, found: Mapping[str, Any]) -> None:
    """The answers in the order of their probabilities."""
    name = found["text"].split(",")[0]
    drawing.text(640, 36, "Its missing links, ranked", 17, bold=True)
    drawing.text(640, 57, "with probabilities and reasons", 13, SOFT)
    drawing.box(640, 76, 296, 296, SHEET, LINE)
    drawing.text(660, 106, name, 15, TEAL, bold=True)
    drawing.text(916, 106, f"{found['relation']} → ?", 15, SOFT, "end")
    drawing.path("M640 122 H936", LINE, 1)
    for row, answer in enumerate(found["answers"]):
        y = 149 + 32 * row
        share = answer["probability"]
        drawing.text(660, y, answer["name"], 15, INK, bold=row == 0)
        drawing.add("rect", x=800, y=y - 10, width=54, height=8, rx=4, fill=GREY_SOFT, stroke=LINE)
        drawing.add("rect", x=800, y=y - 10, width=round(max(54 * share, 2), 1), height=8, rx=4, fill=TEAL)
        drawing.text(916, y, f"{share:.1%}".replace("%", " %"), 14, INK, "end", bold=row == 0)
    drawing.path("M640 300 H936", LINE, 1)
    first, similar = found["answers"][0]["name"], " and ".join(found["similar"][:2])
    drawing.text(660, 324, f"Why {first}?", 13, INK, bold=True)
    drawing.text(660, 343, f"{similar} have", 12, SOFT)
    drawing.text(660, 360, "similar texts and the same answer.", 12, SOFT)


def overview(found: Mapping[str, Any]) -> Drawing:
    """Draw a prediction: the text of a new entity, a relation, answers, and the entities with similar texts."""
    best = found["answers"][0]
    drawing = Drawing(
        960,
        396,
        "A knowledge graph with texts and a new entity, which is only a sentence, go into fnftg. Out come the missing"
        f" links of {found['text'].split(',')[0]}, ranked: {best['name']} with probability {best['probability']:.1%},"
        f" then {', '.join(one['name'] for one in found['answers'][1:])}.",
    )
    graph(drawing)
    new_entity(drawing, found["text"])
    arrows(drawing)
    links(drawing, found)
    return drawing
