"""The pictures that need a trained model: what it predicts for the README's picture, and the web page in a browser."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

QUOKKA = "quokka, a small wallaby of Western Australia, about as large as a cat"  # also in the Makefile's demo
VIEWS = {  # file: the page's address, the height of the window, and what must be there before the picture is taken
    "page-entity.png": ("entity/dog.n.01?relation=_hypernym&direction=heads", 800, ".answer"),
    "page-new.png": (f"new?relation=_hypernym&text={quote(QUOKKA)}", 718, ".answer"),
    "page-reasons.png": ("entity/poodle.n.01?relation=_hypernym&why=dog.n.01", 1000, "dialog .word"),
}
WIDTH = 1200
FLAGS = "no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update disable-sync"
COMMAND = Path(sys.executable).with_name("fnftg")


def find_chromium() -> str:
    """The system's browser; ends the program with one sentence where there is none."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        sys.exit("Screenshots need a browser: install chromium or google-chrome, then run make pictures again.")
    return found


def check_recipe(run: Path) -> dict[str, Any]:
    """The fields of the default recipe; ends the program unless the run was trained with them."""
    from fnftg.models.configs import from_dict
    from fnftg.training.recipes import DEFAULT, recipe_fields
    from fnftg.training.run_config import RunConfig

    fields = recipe_fields(DEFAULT)
    expected = asdict(from_dict(RunConfig, fields))
    trained = json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]
    if any(trained[part] != expected[part] for part in ("system", "model", "training")):
        sys.exit(f"{run} was not trained with today's recipe {DEFAULT}: remove it, then run make pictures again.")
    return {"recipe": DEFAULT, "fields": fields}


def predict(run: Path) -> dict[str, Any]:
    """The question of the README's picture, its answers, and entities with similar texts that have the first one."""
    options = ["--relation", "hypernym", "-k", "5", "--reasons", "--json", "--text", QUOKKA]
    done = subprocess.run([COMMAND, "predict", run, *options], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    if found["answers"][0]["probability"] is None:
        sys.exit(f"{run} has no probabilities: run fnftg calibrate {run} first.")
    evidence = {one["source"]: one for one in found["reasons"]["evidence"]}
    return {
        "text": QUOKKA,
        "relation": "hypernym",
        "answers": [{"name": one["name"], "probability": one["probability"]} for one in found["answers"]],
        "similar": [item["entity"]["name"] for item in evidence["text_knn"]["items"]],
    }


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """The address of `fnftg serve RUN`, once its model is loaded."""
    server = subprocess.Popen([COMMAND, "serve", run, "--port", "0"], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        addresses = (found[0] for line in server.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
        address = next(addresses, None)
        if address is None:
            sys.exit(f"fnftg serve {run} did not start: run it to see why.")
        while not is_ready(address):
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.communicate()


def is_ready(address: str) -> bool:
    try:
        with urlopen(f"{address}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except HTTPError:
        return False


def take_screenshots(address: str, chromium: str, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[f"--{flag}" for flag in FLAGS.split()])
        for name, (route, height, expected) in VIEWS.items():
            page = browser.new_page(
                viewport={"width": WIDTH, "height": height}, color_scheme="light", reduced_motion="reduce"
            )
            page.goto(f"{address}/#/{route}")
            page.locator(expected).first.wait_for(timeout=60_000)
            page.wait_for_load_state("networkidle")
            page.evaluate("document.activeElement.blur()")  # no ring around the button that has the focus
            page.screenshot(path=folder / name)
            page.close()
        browser.close()


def renew(run: Path, folder: Path) -> None:
    """Take the screenshots anew, and write which model they show and what it predicts into made-with.json."""
    from fnftg import __version__

    chromium = find_chromium()
    made_with = {
        **check_recipe(run),
        "version": __version__,
        "graph": "wordnet-animals",
        "checkpoint": hashlib.sha256((run / "checkpoint" / "model.safetensors").read_bytes()).hexdigest(),
        "test_mrr": round(json.loads((run / "checkpoint" / "metrics.json").read_text())["test"]["mrr"], 4),
        "screenshots": list(VIEWS),
        "prediction": predict(run),
    }
    with serving(run) as address:
        take_screenshots(address, chromium, folder)
    text = json.dumps(made_with, indent=2, ensure_ascii=False)
    (folder / "made-with.json").write_text(text + "\n", encoding="utf-8")
