"""An entity, and then a relation, that do not exist yet: described in words, linked, and asked about.

python examples/new_entity.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import fnftg
from fnftg import NewEntity, Relation

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
kinds = {"bird": "a bird, an animal with feathers", "fish": "a fish, an animal with fins", "air": "air", "sea": "sea"}
texts = kinds | {f"b{i}": f"bird number {i} with feathers" for i in range(20)}
texts |= {f"f{i}": f"fish number {i} with fins" for i in range(20)}
triples = [(f"{kind[0]}{i}", "is_a", kind) for i in range(20) for kind in ("bird", "fish")]
triples += [(f"b{i}", "moves_in", "air") for i in range(20)] + [(f"f{i}", "moves_in", "sea") for i in range(20)]
graph = fnftg.KnowledgeGraph.from_triples({"train": triples[2:], "val": triples[:2]}, texts).save(folder / "graph")
text = {"encoder": "scratch:L-1_H-32_A-2", "pooling": "mean"}  # tiny and untrained; recipe="frugal" has MiniLM
training = {"epochs": 30, "batch_size": 32, "learning_rate": 0.01, "validate_every": 30, "loss": {"name": "infonce"}}
recipe = {"model": {"text": text}, "training": training}
fnftg.train(graph, recipe, output=folder / "run")

predictor = fnftg.load(folder / "run")
sparrow = NewEntity("sparrow, a small bird with feathers", edges=[("is a", "bird")])
chick = NewEntity("chick of a sparrow", edges=[("is a", "bird"), (Relation("is a child of"), sparrow)])
for title, answers in {
    "Where does a sparrow move?": predictor.tails(sparrow, "moves in", k=2),
    "And its chick, which is linked to it?": predictor.tails(chick, "moves in", k=2),
    "Whose natural enemy is it?": predictor.tails(sparrow, Relation("is the natural enemy of"), k=2),
}.items():
    print(title, *(f"{answer.name} ({answer.score:.3f})" for answer in answers), sep="\n   ")
predictor.add(sparrow, chick).save(folder / "with-sparrows")  # nothing was written before
