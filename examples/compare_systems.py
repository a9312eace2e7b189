"""Compare two systems on one graph: FnF-TG, which reads texts and ego-graphs, and BOW, which averages word vectors.

python examples/compare_systems.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import fnftg

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
colours = ("red", "green", "blue", "white")
texts = {f"b{i}": f"block number {i} made of {colours[i % 4]} wood" for i in range(80)}
texts |= {colour: f"the colour {colour}" for colour in colours}
triples = [(f"b{i}", "lies_on", f"b{(i + 4) % 80}") for i in range(80)]
triples += [(f"b{i}", "has_colour", colours[i % 4]) for i in range(80)]
parts = {"train": triples[:120], "val": triples[120:140], "test": triples[140:]}
graph = fnftg.KnowledgeGraph.from_triples(parts, texts).save(folder / "graph")

text = {"encoder": "scratch:L-1_H-32_A-2", "pooling": "mean"}  # tiny and untrained; recipe="frugal" has MiniLM
training = {"epochs": 30, "batch_size": 32, "learning_rate": 0.01, "validate_every": 30, "loss": {"name": "infonce"}}
recipe = {"model": {"text": text}, "training": training}
for system, title in {"fnf": "FnF-TG", "bow": "BOW"}.items():
    model = fnftg.train(graph, recipe, output=folder / system, system=system)
    found = fnftg.evaluate(model, graph, protocol="strict")
    print(f"{title:8} MRR {found['mrr']:.3f}  Hits@1 {found['hits@1']:.3f}")
print(f"{'chance':8} MRR {found['baselines']['random']['mrr']:.3f}")
