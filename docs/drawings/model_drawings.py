"""The drawings of the pages on the model and on protocols. All triples in them are those of WordNet."""

from __future__ import annotations

from svg import (
    AMBER,
    AMBER_SOFT,
    BLUE,
    BLUE_SOFT,
    GREY_SOFT,
    INK,
    LINE,
    RED,
    RED_SOFT,
    SHEET,
    SOFT,
    TEAL,
    TEAL_SOFT,
    Drawing,
)


def ego_graph_texts(drawing: Drawing, y: float, title: str, texts: list[str], colour: str, soft: str) -> None:
    """The texts of a centre and of its neighbours, each with an arrow to the Text Transformer."""
    drawing.text(24, y - 12, title, 13, colour, bold=True)
    for row, words in enumerate(texts):
        top, height = (y, 38) if row == 0 else (y + 14 + 34 * row, 28)
        drawing.box(24, top, 252, height, *((soft, colour) if row == 0 else (BLUE_SOFT, BLUE)))
        drawing.text(150, top + height / 2 + 5, words, 14 if row == 0 else 13, anchor="middle")
        drawing.path(f"M276 {top + height / 2:g} H334", arrow=True)


def small_ego_graph(drawing: Drawing, y: float, colour: str, soft: str) -> None:
    """A box of the Graph Transformer: the centre and two neighbours."""
    drawing.box(555, y, 150, 106, GREY_SOFT, SOFT)
    for end in (y + 26, y + 80):
        drawing.path(f"M599 {y + 53:g} L673 {end:g}", BLUE, 2)
        drawing.circle(673, end, 13, BLUE_SOFT, BLUE)
    drawing.circle(599, y + 53, 27, soft, colour)
    drawing.text(599, y + 57, "centre", 12, anchor="middle")
    drawing.path(f"M496 {y + 53:g} H553", arrow=True)


def model() -> Drawing:
    drawing = Drawing(
        960,
        452,
        "A query and a candidate go through the same Text Transformer and the same Graph Transformer. The vector of the"
        " relation is added to the query's vector. The score is the negative L1 distance of the sum to the candidate.",
    )
    for x, words in ((150, "Texts"), (416, "Text Transformer"), (630, "Graph Transformer"), (846, "Score")):
        drawing.text(x, 34, words, 15, anchor="middle", bold=True)
    query = ["poodle ‖ hypernym", "toy poodle · inverse of hypernym", "large poodle · inverse of hypernym"]
    ego_graph_texts(drawing, 80, "Query: (poodle, hypernym, ?)", query, AMBER, AMBER_SOFT)
    drawing.text(24, 218, "Relation", 13, RED, bold=True)
    drawing.box(24, 228, 252, 34, RED_SOFT, RED)
    drawing.text(150, 250, "hypernym", 14, anchor="middle")
    drawing.path("M276 245 H334", arrow=True)
    candidate = ["dog, domestic dog, …", "canine · hypernym", "puppy · inverse of hypernym"]
    ego_graph_texts(drawing, 308, "Candidate: dog", candidate, TEAL, TEAL_SOFT)

    drawing.box(336, 62, 160, 366, GREY_SOFT, SOFT)
    for row, words in enumerate(("encoder", "(MiniLM, BERT, …)", "↓", "mean or [CLS]", "↓", "two-layer MLP")):
        drawing.text(416, 160 + 24 * row, words, 13 if row == 1 else 14, SOFT if row == 1 else INK, "middle")
    drawing.text(416, 336, "the same weights", 12, SOFT, "middle", italic=True)
    drawing.text(416, 352, "for all texts", 12, SOFT, "middle", italic=True)

    small_ego_graph(drawing, 84, AMBER, AMBER_SOFT)
    small_ego_graph(drawing, 298, TEAL, TEAL_SOFT)
    drawing.text(630, 422, "edge labels scale", 12, SOFT, "middle", italic=True)
    drawing.text(630, 438, "the attention", 12, SOFT, "middle", italic=True)

    for y, words, colour, soft in ((118, "h", AMBER, AMBER_SOFT), (332, "t", TEAL, TEAL_SOFT)):
        drawing.path(f"M705 {y + 19:g} H778", arrow=True)
        drawing.box(780, y, 132, 38, soft, colour)
        drawing.text(846, y + 25, words, 15, anchor="middle", bold=True)
    drawing.box(780, 226, 132, 38, RED_SOFT, RED)
    drawing.text(846, 251, "h + r", 15, anchor="middle", bold=True)
    drawing.path("M846 156 V224", arrow=True)
    drawing.path("M496 245 H778", RED, arrow=True)
    drawing.text(630, 237, "r", 15, RED, "middle", bold=True)
    drawing.path("M846 266 V330", INK, 1.8, dashes="4 4")
    drawing.text(856, 303, "distance", 12, SOFT)
    drawing.text(846, 398, "score = −‖ h + r − t ‖₁", 14, anchor="middle", bold=True)
    drawing.text(846, 420, "The nearest candidate", 12, SOFT, "middle")
    drawing.text(846, 436, "is the first answer.", 12, SOFT, "middle")
    return drawing


def attention() -> Drawing:
    drawing = Drawing(
        960,
        330,
        "The ego-graph of dog and the attention matrix of its nodes. Only the row of the centre, dog, is computed."
        " In it the label of each edge scales the neighbour's key.",
    )
    drawing.text(200, 34, "Ego-graph of dog", 15, anchor="middle", bold=True)
    nodes = [  # name, its place, the label of its edge and the label's place
        ("canine", 120, 84, "hypernym", 130, 139),
        ("puppy", 350, 180, "inverse of hypernym", 237, 172),
        ("flag", 120, 276, "has part", 130, 236),
    ]
    for name, x, y, label, label_x, label_y in nodes:
        drawing.path(f"M120 180 L{x} {y}", BLUE, 2)
        drawing.circle(x, y, 29, BLUE_SOFT, BLUE)
        drawing.text(x, y + 5, name, 13, anchor="middle")
        drawing.text(label_x, label_y, label, 12, SOFT, "middle" if name == "puppy" else "start")
    drawing.circle(120, 180, 33, AMBER_SOFT, AMBER)
    drawing.text(120, 185, "dog", 15, anchor="middle", bold=True)

    drawing.text(680, 34, "Attention matrix: only the centre's row is computed", 15, anchor="middle", bold=True)
    names, labels = ["dog", "canine", "puppy", "flag"], ["", "hypernym", "hypernym⁻¹", "has part"]
    left, top, width, height = 484, 82, 98, 46
    for column, name in enumerate(names):
        middle = left + width * (column + 0.5)
        drawing.text(middle, top - 10, name, 13, SOFT, "middle")
        drawing.text(left - 10, top + height * (column + 0.5) + 5, name, 13, SOFT, "end")
        for row in range(4):
            fill = GREY_SOFT if row else AMBER_SOFT if column == 0 else BLUE_SOFT
            x, y = left + width * column, top + height * row
            drawing.add("rect", x=x, y=y, width=width, height=height, fill=fill, stroke=SHEET, stroke_width=2)
        words, y = ("q · k", top + 28) if column == 0 else ("q · (ρ ⊙ k)", top + 20)
        drawing.text(middle, y, words, 13, INK, "middle")
        drawing.text(middle, top + 37, labels[column], 11, SOFT, "middle")
    drawing.add("rect", x=left, y=top, width=4 * width, height=height, fill="none", stroke=INK, stroke_width=2)
    drawing.text(left + 2 * width, top + 2.5 * height + 5, "not used, so not computed", 13, SOFT, "middle", italic=True)
    drawing.path(f"M{left + 4 * width + 4} {top + height / 2:g} H900", arrow=True)
    drawing.text(924, top + 20, "dog's", 13, anchor="middle")
    drawing.text(924, top + 36, "vector", 13, anchor="middle")
    legend = "q: query of the row · k: key of the column · ρ = 1 + LN(r) W, with r from the label's text"
    drawing.text(680, 300, legend, 12, SOFT, "middle")
    return drawing


def hidden() -> Drawing:
    drawing = Drawing(
        960,
        278,
        "The triple swim, derivationally related form, swimmer and its reverse. Hiding the target leaves the reverse"
        " visible, which reveals the answer. Hiding the pair hides both.",
    )
    relation = "derivationally related form"
    panels = [
        ("The graph", "two triples, one in each direction", relation, relation),
        ("Hidden: the target", "cumulative, own-split", "target, hidden", "visible: reveals the answer"),
        ("Hidden: the pair", "strict", "target, hidden", "hidden too"),
    ]
    for column, (title, note, upper, lower) in enumerate(panels):
        x = 320 * column
        if column:
            drawing.path(f"M{x} 28 V250", LINE, 1.2)
        drawing.text(x + 160, 38, title, 15, anchor="middle", bold=True)
        drawing.text(x + 160, 58, note, 12, SOFT, "middle")
        target, reverse = RED if column else BLUE, (BLUE, BLUE, RED)[column]
        for d, colour, y, words, is_hidden in (
            (f"M{x + 88} 132 Q{x + 160} 92 {x + 226} 128", target, 97, upper, column > 0),
            (f"M{x + 228} 160 Q{x + 160} 198 {x + 90} 162", reverse, 203, lower, column > 1),
        ):
            drawing.path(d, colour, 2.2, arrow=True, dashes="3 5" if is_hidden else None)
            drawing.text(x + 160, y, words, 12, colour, "middle", bold=words.startswith("visible"))
        for end, other in ((x + 60, x + 44), (x + 256, x + 274)):
            drawing.path(f"M{end} 146 L{other} 228", BLUE, 2)
            drawing.circle(other, 230, 12, BLUE_SOFT, BLUE)
        drawing.circle(x + 60, 146, 29, AMBER_SOFT, AMBER)
        drawing.circle(x + 256, 146, 33, TEAL_SOFT, TEAL)
        drawing.text(x + 60, 150, "swim", 13, anchor="middle")
        drawing.text(x + 256, 150, "swimmer", 12, anchor="middle")
    return drawing
