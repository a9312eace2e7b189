"""Every file that fnftg writes, damaged in every way: it is refused in a sentence, or made again with a notice, or makes
no difference. Never a traceback, a crash, a hang or another answer.

FNFTG_FLIPS sets how many single bits are flipped in each array (default: 25).
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnftg
from fnftg.checksums import CHECKSUMS, write_checksums
from fnftg.cli import main
from fnftg.errors import FnftgError
from fnftg.files import sha256
from fnftg.json_files import read_json, write_json
from fnftg.training.loop import read_config, train_run

NAMES = [f"{word}-{number}" for number in range(6) for word in ("apple", "badger", "cedar", "drum", "ember", "falcon")]
FIELDS: dict[str, Any] = {
    "model": {
        "text": {"encoder": "scratch:L-1_H-32_A-2", "words": 4, "width": 16, "query": "vector"},
        "evidence": {"sources": ["text_knn", "relation_cooccurrence", "mentions"], "num_nearest": 3},
    },
    "training": {"epochs": 2, "batch_size": 20, "save_every": 1},
    "trainer": {"threads": 1},
}
KNOWN = ("--head", "badger-3", "--relation", "near", "-k", "5", "--json")
NEW = ("--text", "bison, a thing of the plains", "--edge", "near=ember-2", "--relation", "near", "-k", "5", "--json")
AREAS: dict[str, tuple[tuple[str, ...], ...]] = {  # folders, and the commands that read them
    "graph": (("data", "stats", "graph", "--json"), ("predict", "run", *KNOWN)),
    "run": (("predict", "run", *KNOWN), ("predict", "run", *NEW), ("predict", "run", *KNOWN, "--index")),
    "updated": (("predict", "updated", *KNOWN), ("predict", "updated", *NEW)),
    "home": (("predict", "run", *KNOWN), ("predict", "run", *NEW), ("evaluate", "run", "--json")),
    "stopped": (("train", "--resume", "stopped", "--json"), ("predict", "stopped", *KNOWN)),
}
# without these a run is one that was not calibrated, or not updated
OPTIONAL = {"calibration.json", "probability.json", "graph.json"}
NOT_READ = {"log.csv", "README.md"}  # by these commands, so that nothing can be said about them
SECONDS = 120  # after which a command hangs


class World:
    """A graph, runs on it and the cache, all whole; and a place where they can be damaged."""

    def __init__(self, folder: Path):
        self.whole, self.place = folder / "whole", folder / "world"
        self.place.mkdir()
        chance = np.random.default_rng(0)
        triples = [
            (str(head), str(chance.choice(["near", "like"])), str(tail))
            for head, tail in chance.choice(NAMES, (200, 2))
            if head != tail
        ]
        splits = {"train": triples[:120], "val": triples[120:150], "test": triples[150:]}
        texts = {name: f"{name}, thing number {number}" for number, name in enumerate(NAMES)}
        graph = fnftg.KnowledgeGraph.from_triples(splits, texts, {}).save(self.place / "graph")
        (folder / "texts.tsv").write_text("gnu-1\tgnu-1, a thing that was added\n")
        (folder / "triples.tsv").write_text("gnu-1\tnear\tbadger-3\ngnu-1\tlike\tember-2\n")
        with self.at_home():
            fnftg.train(graph, FIELDS, output=self.place / "run")
            shutil.copytree(self.place / "run", self.place / "updated")
            added = ["--triples", str(folder / "triples.tsv"), "--texts", str(folder / "texts.tsv")]
            for command in (
                ["calibrate", "run", "--share", "0.3"],
                ["predict", "run", *KNOWN, "--index"],
                ["update", "updated", *added],
            ):
                assert main(command) == 0

            def stop(step: int, loss: float) -> None:
                if step == 4:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                config = read_config(self.place / "run")
                train_run(graph, config, self.place / "stopped", self.place / "home" / "texts", after_step=stop)
        assert {path.name for path in self.place.rglob("*.json")} >= OPTIONAL
        shutil.copytree(self.place, self.whole)

    @contextmanager
    def at_home(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FNFTG_HOME", str(self.place / "home"))
            patch.chdir(self.place)
            yield

    def restore(self, area: str | None = None) -> None:
        """Makes everything whole again, or what the commands of an area read and write."""
        for name in AREAS if area is None else ("graph", "run") if area == "graph" else (area,):
            shutil.rmtree(self.place / name, ignore_errors=True)
            shutil.copytree(self.whole / name, self.place / name)

    def files(self, area: str) -> list[Path]:
        """Of an area, as they are named below the place."""
        found = (path.relative_to(self.whole) for path in sorted((self.whole / area).rglob("*")) if path.is_file())
        once = () if area == "run" else ("checkpoint", "restart")  # parts of other areas that are those of a run too
        read = (path for path in found if path.name not in NOT_READ)
        return [path for path in read if path.parts[1] not in once or (area, path.parts[1]) == ("stopped", "restart")]


Outcome = tuple[int, str, str]
Ask = Callable[[str], list[Outcome]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("damage"))


@pytest.fixture
def ask(world: World, capfd: pytest.CaptureFixture[str]) -> Ask:
    """What the commands of an area answer: exit code, standard output, standard error."""

    def run(area: str) -> list[Outcome]:
        outcomes = []
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        with world.at_home():
            for command in AREAS[area]:
                capfd.readouterr()
                code = main(list(command))
                outcomes.append((code, *capfd.readouterr()))
        faulthandler.cancel_dump_traceback_later()
        return outcomes

    return run


def without_times(output: str) -> Any:
    """JSON without what differs from run to run."""
    try:
        value = json.loads(output)
    except ValueError:
        return output
    if isinstance(value, dict):
        for name in ("seconds", "training_seconds"):
            value.pop(name, None)
    return value


def judged(expected: Outcome, found: Outcome) -> str:
    """What became of a command once a file was damaged; the last word tells whether that is allowed."""
    code, output, errors = found
    if "Traceback" in errors:
        return "traceback: not allowed"
    if code == 0 and without_times(output) == without_times(expected[1]):
        return "rebuilt: fine" if "again" in errors else "no difference: fine"
    if code == 1 and not output and errors.rstrip("\n").splitlines()[-1].startswith("fnftg: "):
        return "refused: fine"
    return f"{code} {output[:300]} {errors[-300:]}: not allowed"


# Damage


def flipped(share: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        if content:
            content[min(int(share * len(content)), len(content) - 1)] ^= 1 << (len(content) % 8)
        path.write_bytes(content)

    return damage


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def extended(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 64)


def huge_header(path: Path) -> None:
    """Headers that promise more than there is."""
    content = path.read_bytes()
    if path.suffix == ".npy":
        start = content.index(b"'shape': (") + len("'shape': (")
        path.write_bytes(content[:start] + b"9" * 12 + content[start + 12 :])
    elif path.suffix == ".safetensors":
        path.write_bytes(struct.pack("<Q", 1 << 60) + content[8:])
    else:
        path.write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + content)


def wrong_dtype(path: Path) -> None:
    content = path.read_bytes()
    if path.suffix == ".npy":
        np.save(path, np.load(path).astype(np.float64))
    elif path.suffix == ".safetensors":
        path.write_bytes(content.replace(b'"F32"', b'"I32"'))
    else:
        path.write_bytes(b"\xff\xfe" + content)


def nested_json(path: Path) -> None:
    path.write_text("[" * 100_000 if path.suffix != ".json" else '{"a":' * 100_000)


def removed(path: Path) -> None:
    path.unlink()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated": truncated,
    "flipped at the start": flipped(0.0),
    "flipped in the middle": flipped(0.5),
    "flipped at the end": flipped(1.0),
    "emptied": emptied,
    "extended": extended,
    "huge header": huge_header,
    "wrong dtype": wrong_dtype,
    "nested JSON": nested_json,
    "removed": removed,
}


@pytest.mark.parametrize("area", AREAS)
def test_what_is_whole_is_answered_without_a_notice(area: str, world: World, ask: Ask) -> None:
    world.restore()
    assert [outcome[0] for outcome in ask(area)] == [0] * len(AREAS[area])
    assert not any("again" in errors for _, _, errors in ask(area))


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_file_is_refused_or_rebuilt_or_makes_no_difference(
    kind: str, area: str, world: World, ask: Ask
) -> None:
    world.restore()
    expected, wrong = ask(area), {}
    for file in world.files(area):
        if kind == "removed" and file.name in OPTIONAL:
            continue
        world.restore(area)
        DAMAGE[kind](world.place / file)
        found = [judged(*pair) for pair in zip(expected, ask(area), strict=True)]
        if any(word.endswith("not allowed") for word in found):
            wrong[str(file)] = found
    assert not wrong


@pytest.mark.parametrize("area", AREAS)
def test_forged_file_with_a_fitting_checksum_never_crashes(area: str, world: World, ask: Ask) -> None:
    """Behind the checksums everything is checked that a loop relies on. The answers may be others: they were forged."""
    wrong = {}
    for kind in ("huge header", "wrong dtype", "flipped in the middle", "nested JSON"):
        for file in world.files(area):
            if file.name in (CHECKSUMS, "manifest.json"):
                continue
            world.restore(area)
            DAMAGE[kind](world.place / file)
            seal_again(world.place / file)
            for _, _, errors in ask(area):
                if "Traceback" in errors:
                    wrong[f"{kind} {file}"] = errors[-500:]
    assert not wrong


def seal_again(path: Path) -> None:
    """Makes the checksums fit a changed file."""
    if path.suffix == ".json":
        with suppress(ValueError, RecursionError, AttributeError):
            write_json(
                path, {name: value for name, value in json.loads(path.read_bytes()).items() if name != "checksum"}
            )
    for folder in path.parents:
        if (folder / CHECKSUMS).is_file():
            kind = read_json(folder / CHECKSUMS)["format"].removeprefix("fnftg-")
            (folder / CHECKSUMS).unlink()
            write_checksums(folder, kind)
            return
        if (folder / "manifest.json").is_file():
            manifest = read_json(folder / "manifest.json")
            manifest["files"][path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
            write_json(folder / "manifest.json", manifest)
            return


# Single bits


@pytest.mark.parametrize("what", ["home/texts/features-*/*.npy", "run/answers/*/neighbours/*.npy", "run/answers/*/table.npy",
                                  "run/answers/*/known.npy", "run/checkpoint/model.safetensors"])  # fmt: skip
def test_no_flipped_bit_changes_an_answer_silently(what: str, world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.restore()
    chance, noticed, flips = random.Random(what), 0, int(os.environ.get("FNFTG_FLIPS", "25"))
    questions = [
        fnftg.Question(head="badger-3", relation="near"),
        fnftg.Question(head=fnftg.NewEntity("bison, a thing of the plains"), relation="like"),
    ]
    with world.at_home():
        expected = fnftg.load("run").many(questions, 5)
        files = sorted(world.place.glob(what))
        assert files
        for _ in range(flips):
            file = chance.choice(files)
            content, bit = file.read_bytes(), chance.randrange(8 * file.stat().st_size)
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            try:
                found = fnftg.load("run").many(questions, 5)
                assert found == expected
                noticed += " again" in capfd.readouterr().err  # computed, built or made again
            except FnftgError:
                noticed += 1
            shutil.copytree(world.whole, world.place, dirs_exist_ok=True)
    assert noticed == flips
