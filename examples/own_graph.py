"""A graph of your own from a TSV file: import it, split it, train a small model, ask it.

python examples/own_graph.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import fnftg

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())

# Head, relation and tail on each line. A model reads texts; where a graph brings none, the ids are its texts.
kinds, places, foods = ("cat", "dog", "horse", "mouse", "owl"), ("barn", "house", "forest"), ("hay", "meat", "grain")
lines = []
for number in range(60):
    animal = f"young {kinds[number % 5]} {number}"
    lines += [f"{animal}\tis a\t{kinds[number % 5]}", f"{animal}\tlives in\t{places[number % 3]}"]
    lines += [f"{animal}\teats\t{foods[number % 5 % 3]}"]
(folder / "animals.tsv").write_text("\n".join(lines) + "\n")

fnftg.import_graph(folder / "animals.tsv", folder / "store")
graph = fnftg.KnowledgeGraph.open(folder / "store").split_inductive(min_edges=0).save(folder / "split")
text = {"encoder": "scratch:L-1_H-32_A-2", "pooling": "mean"}  # tiny and untrained; recipe="frugal" has MiniLM
training = {"epochs": 30, "batch_size": 32, "learning_rate": 0.01, "validate_every": 30, "loss": {"name": "infonce"}}
recipe = {"model": {"text": text}, "training": training}
fnftg.train(graph, recipe, output=folder / "run")

predictor = fnftg.load(folder / "run")
print("What does the young owl 4 eat?")
for answer in predictor.tails("young owl 4", "eats", k=3, known=True):
    print(f"{answer.rank}. {answer.name:20} {answer.score:8.3f} {'(known)' if answer.known else ''}")
