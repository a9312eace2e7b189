"""`fnftg report`: a self-contained HTML page with the results and plots of a run."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from fnftg.files import new_folder
from fnftg.ranking.protocols import DEFAULT_PROTOCOL
from fnftg.ranking.report_plots import draw_all
from fnftg.ranking.runs import RunFolder

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2rem 0; } img { max-width: 100%; background: white; border-radius: 6px; }
figcaption, .note { opacity: .75; font-size: .9rem; }
"""
METRICS = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}


def write_report(run: RunFolder, found: dict[str, Any], folder: Path) -> None:
    """Write index.html and the plots of a run, given its results {protocol: results}."""
    with new_folder(folder, "report", force=True) as partial:
        captions = draw_all(run.learning_curve(), found, partial)
        page = written(run, found, {name: (partial / name).read_bytes() for name in captions}, captions)
        (partial / "index.html").write_text(page, encoding="utf-8")


def written(run: RunFolder, found: dict[str, Any], pictures: dict[str, bytes], captions: dict[str, str]) -> str:
    """Return the HTML page."""
    started = run.started_with()
    first = next(iter(found.values()))
    title = f"Evaluation of {run.path.resolve().name}"
    rows = [(name, *figures(results)) for name, results in found.items()]
    rows += [
        (f"{baseline} baseline ({name})", *figures(values))
        for name, results in found.items()
        for baseline, values in results["baselines"].items()
    ]
    figures_ = [
        f'<figure><img alt="{html.escape(captions[name])}" src="data:image/png;base64,'
        f'{base64.b64encode(picture).decode()}"><figcaption>{html.escape(captions[name])}</figcaption></figure>'
        for name, picture in pictures.items()
    ]
    protocols = "".join(
        f"<li><b>{name}</b>: {html.escape(results['protocol']['words'])}</li>" for name, results in found.items()
    )
    relations = [
        (row["relation"], row["category"], f"{row['triples']:,}", *figures(row))
        for row in found[DEFAULT_PROTOCOL]["relations"]
    ]
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>',
            f"<h1>{html.escape(title)}</h1>",
            f"<p>Graph {html.escape(Path(started['graph']).name)}, split {html.escape(first['split'])}: "
            f"{first['queries']:,} queries, seed {started['config']['training']['seed']}. Ranks are filtered, and tied "
            "candidates get their mean rank. Brackets: bootstrap 95 % intervals.</p>",
            table(["protocol", *METRICS.values()], rows),
            f"<ul class=note>{protocols}</ul>",
            *figures_,
            f"<h2>By relation (protocol {DEFAULT_PROTOCOL})</h2>",
            table(["relation", "kind", "triples", *METRICS.values()], relations),
            "</html>",
        ]
    )


def figures(values: dict[str, Any]) -> list[str]:
    bounds = values.get("intervals", {})
    return [
        f"{values[name]:.4f}" + (" ({:.3f}–{:.3f})".format(*bounds[name]) if name in bounds else "") for name in METRICS
    ]


def table(columns: list[str], rows: list[Any]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
