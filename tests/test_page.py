"""The web page, in a real browser and against the real server, says what the predictor says, and stands by its user."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
import torch
import uvicorn
from conftest import probability_by_hand

import fnftg
from fnftg.ego.ego_config import EgoConfig
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.sources import SOURCES
from fnftg.kg import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.pretrained import save_pretrained
from fnftg.predict.predictor import Predictor
from fnftg.predict.questions import Answer, NewEntity, Relation
from fnftg.serve.app import make_app
from fnftg.serve.connection_table import make_table
from fnftg.serve.http_protocol import ServerConfig
from fnftg.serve.options import Options
from fnftg.serve.schemas import ExplanationOut
from fnftg.serve.server import listening_socket
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines

playwright_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("there is no chromium on this machine", allow_module_level=True)
expect, PATIENCE = playwright_api.expect, 30_000  # milliseconds, on a machine that has other work too
expect.set_options(timeout=PATIENCE)
FLAGS = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync"

ODD = "http://zoo.example/a/b?x=1&y#50% of: “it”"  # an id that no address can hold as it is
SCRIPT = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>"
BREEDS = [f"breed {number} of otters with a rather long name" for number in range(30)]
TEXTS = {
    "animal": "animal, a living thing that moves and eats",
    "mammal": "mammal, an animal that feeds its young with milk",
    "otter": "otter, a mammal that swims in rivers and eats fish",
    "sea-otter": "sea otter, a large otter that lives in the sea",
    "fish": "fish, an animal that lives in water and has fins",
    "trout": "trout, a fish of cold rivers",
    "whisker": "whisker, a long stiff hair near the mouth",
    "evil": f"{SCRIPT}, a script that wants to run",
    ODD: "oddly called, an animal whose id needs care",
    **{breed: f"{breed}, one of very many" for breed in BREEDS},
}
TRIPLES = [
    ("mammal", "_hypernym", "animal"),
    ("fish", "_hypernym", "animal"),
    ("otter", "_hypernym", "mammal"),
    ("trout", "_hypernym", "fish"),
    ("otter", "_eats", "trout"),
    ("otter", "_eats", "fish"),
    ("otter", "_has_part", "whisker"),
    ("evil", "_hypernym", "animal"),
    (ODD, "_hypernym", "animal"),
    *((breed, "_hypernym", "sea-otter") for breed in BREEDS),
]
RELATIONS = {"_hypernym": "is a kind of", "_eats": "eats", "_has_part": "has part", "_lives_in": "lives in"}


def make_run(folder: Path) -> Path:
    """A tiny model over a graph that can be read, as training leaves it."""
    later = {"val": [("sea-otter", "_hypernym", "otter")], "test": [("sea-otter", "_eats", "fish")]}
    graph = KnowledgeGraph.from_triples({"train": TRIPLES, **later}, TEXTS, RELATIONS)
    graph.save(folder / "graph")
    encoder = load_encoder("scratch:L-1_H-32_A-2", GraphLines(graph))
    torch.manual_seed(0)
    text = TextConfig(encoder=encoder.name, width=16, training="frozen", query="vector")
    evidence = EvidenceConfig(list(SOURCES), num_nearest=6, initial_weight=0.5)
    model = FnF(
        FnFConfig(text=text, ego=EgoConfig(num_neighbours=40, evaluation_num_neighbours=40), evidence=evidence), encoder
    ).eval()
    (folder / "otters").mkdir()
    save_pretrained(model, folder / "otters" / "checkpoint")
    config = {"graph": str(folder / "graph"), "config": {"training": {"protocol": "cumulative"}}}
    (folder / "otters" / "config.json").write_text(json.dumps(config))
    return folder / "otters"


@contextmanager
def serving(run: Path, **options: Any) -> Iterator[str]:
    """The address of the server, which answers in a thread of this process; its model is loaded."""
    bound = listening_socket("127.0.0.1", 0, make_table(None, shared_address=False))
    config = ServerConfig(make_app(Options(str(run), **options)), bound.table, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        while httpx.get(f"{address}/readyz", timeout=60).status_code != 200:
            time.sleep(0.01)
        yield address
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def predictor(run_folder: Path) -> Predictor:
    return fnftg.load(run_folder)


@pytest.fixture(scope="module")
def address(run_folder: Path, predictor: Predictor) -> Iterator[str]:
    with serving(run_folder) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        flags = [f"--{flag}" for flag in FLAGS.split()]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens a page that may ask nobody but its own server, and may have no errors but those a test expects."""
    faults: list[str] = []
    origins: set[str] = set()
    contexts = []

    def open_tab(url: str, **options: Any) -> Any:
        usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**usual, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: origins.add("{0.scheme}://{0.netloc}".format(urlsplit(asked.url))))
        page.goto(url)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    expected = getattr(request.function, "faults", "(?!)")
    assert [fault for fault in faults if not re.search(expected, fault)] == []
    assert len(origins) == 1, f"the page asked others too: {origins}"


def expecting(faults: str) -> Callable[[Any], Any]:
    """Marks a test whose page logs such errors: browsers log every refused request."""

    def mark(function: Any) -> Any:
        function.faults = faults
        return function

    return mark


def field(page: Any, label: str) -> Any:
    return page.get_by_role("combobox", name=label, exact=True)


def choose(page: Any, label: str, words: str) -> None:
    """As a person does: types, and takes the first suggestion."""
    field(page, label).fill(words)
    expect(page.get_by_role("option").first).to_contain_text(words)
    field(page, label).press("Enter")


def answers(page: Any) -> list[str]:
    return page.locator(".answer-name b").all_inner_texts()  # type: ignore[no-any-return]


def expect_answers(page: Any, expected: list[Answer]) -> None:
    """Names and scores, but for a new entity itself."""
    known = [answer for answer in expected if not answer.id.startswith("new:")]
    scores = [
        f"{answer.score:.{1 if abs(answer.score) >= 100 else 2 if abs(answer.score) >= 1 else 3}f}" for answer in known
    ]
    expect(page.locator(".answer-value .number")).to_have_text([score.replace("-", "−") for score in scores])
    expect(page.locator(".answer-name b")).to_have_text([answer.name for answer in known])


def asked_url(address: str, entity: str, **options: str) -> str:
    search = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    return f"{address}/#/entity/{quote(entity, safe='')}?{search}"


# Looking around


def test_an_entity_is_found_by_typing_and_its_links_lead_on(tab: Any, address: str) -> None:
    page = tab(address)
    expect(page.locator("#model")).to_contain_text("39 entities · 4 relations · 41 triples")
    expect(page.locator("#version")).to_have_text(f"fnftg {fnftg.__version__}")
    field(page, "Search for an entity").press_sequentially("ott")
    expect(page.get_by_role("option").first).to_contain_text("otter")
    page.get_by_role("option").first.click()
    expect(page.get_by_role("heading", level=1, name="otter", exact=True)).to_be_visible()
    expect(page).to_have_title("otter · fnftg")
    assert page.url.endswith("#/entity/otter")
    expect(page.locator(".description")).to_have_text(TEXTS["otter"])
    assert sorted(page.locator("a.node text").all_text_contents()) == [
        "fish",
        "mammal",
        "sea otter",
        "trout",
        "whisker",
    ]
    page.locator("a.node", has_text="whisker").click()
    expect(page.get_by_role("heading", level=1, name="whisker")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="otter", exact=True)).to_be_visible()
    page.go_forward()
    expect(page).to_have_title("whisker · fnftg")


def test_some_of_very_many_links_are_drawn_and_the_rest_is_counted(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "sea-otter"))
    expect(page.locator("a.node")).to_have_count(13)  # 11 that come in, all that go out
    expect(page.get_by_text("and 19 more")).to_be_visible()
    assert page.locator("a.node", has_text="…").count() > 0
    assert BREEDS[0] in page.locator(".edge title").all_text_contents()[0]


def test_labels_lie_on_no_node_and_inside_the_drawing_whatever_its_width(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "otter"))
    expect(page.locator("a.node")).to_have_count(5)
    widths = set()
    for width in (1280, 700, 340):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        boxes = page.evaluate(
            """() => ['.graph .label', '.graph rect', '.graph svg'].map((place) =>
                [...document.querySelectorAll(place)].map((one) => {
                    const { left, right, top, bottom } = one.getBoundingClientRect();
                    return [left, right, top, bottom];
                }))"""
        )
        labels, nodes, [(left, right, top, bottom)] = boxes
        widths.add(right - left)
        assert len(labels) == 5 and len(nodes) == 6
        for one in labels + nodes:
            assert left - 1 <= one[0] and one[1] <= right + 1 and top <= one[2] and one[3] <= bottom
        for one in labels:
            for other in nodes + [label for label in labels if label is not one]:
                apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] + 1 or other[3] <= one[2] + 1
                assert apart, (width, one, other)
    assert len(widths) == 3


def test_ids_with_any_character_have_addresses(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "animal"))
    page.locator("a.node", has_text="oddly called").click()
    expect(page.locator(".identity code")).to_have_text(ODD)
    expect(page.locator(".answer").first).to_be_visible()
    page.reload()
    expect(page.locator(".identity code")).to_have_text(ODD)
    page.locator(".answer-main").first.click()
    expect(page.locator("dialog .triple")).to_contain_text("oddly called")


@expecting("404|422")
def test_an_unknown_entity_and_an_unknown_address_say_so(tab: Any, address: str) -> None:
    page = tab(f"{address}/#/entity/oter")
    expect(page.get_by_role("heading", name="Entity not found")).to_be_visible()
    page.locator(".chip", has_text="otter").first.click()
    expect(page.locator(".answer").first).to_be_visible()
    page.goto(f"{address}/#/nowhere")
    expect(page.get_by_text("This page does not exist")).to_be_visible()


def test_what_the_server_says_is_text_and_never_markup(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "evil", relation="_hypernym", direction="heads", known="1"))
    expect(page.get_by_role("heading", level=1)).to_have_text(SCRIPT[:80])
    expect(page.locator(".answer").first).to_be_visible()
    page.locator(".answer-main").first.click()
    expect(page.locator("dialog .words").first).to_contain_text("wants")
    page.goto(f"{address}/#/new?text={quote(SCRIPT)}")
    expect(page.locator(".answer").first).to_be_visible()
    assert page.locator("img, main script").count() == 0
    assert "broken in" not in page.title()


# Asking


def test_answers_are_those_of_the_predictor(tab: Any, address: str, predictor: Predictor) -> None:
    page = tab(asked_url(address, "otter"))
    choose(page, "Relation", "eats")
    expect_answers(page, predictor.tails("otter", "_eats"))
    page.get_by_text("? → otter").click()
    expected = predictor.heads("_eats", "otter")
    expect_answers(page, expected)
    expect(page.get_by_text("Scores are not probabilities. Run fnftg calibrate")).to_be_visible()
    page.reload()  # the question is in the address
    expect_answers(page, expected)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".answer")).to_have_count(30)


def test_known_links_are_shown_and_marked_when_asked_for(tab: Any, address: str, predictor: Predictor) -> None:
    page = tab(asked_url(address, "otter", relation="_eats"))
    expect(page.locator(".answer")).to_have_count(10)
    expect(page.locator(".badge", has_text="known")).to_have_count(0)
    page.get_by_text("Show known links").click()
    expected = predictor.tails("otter", "_eats", known=True)
    expect_answers(page, expected)
    marked = [row.inner_text() for row in page.locator(".answer.known b").all()]
    assert marked == [answer.name for answer in expected if answer.known]


def test_a_relation_may_be_written_in_words(tab: Any, address: str, predictor: Predictor) -> None:
    page = tab(asked_url(address, "otter", relation="_eats"))
    field(page, "Relation").fill("is hunted by")
    page.get_by_role("option", name="is hunted by").click()
    expected = predictor.tails("otter", Relation("is hunted by"))
    expect_answers(page, expected)
    page.locator(".answer-main").first.click()
    expect(page.locator("dialog .triple")).to_contain_text("is hunted by")


def test_all_relations_are_asked_in_portions_that_the_server_takes(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "otter"))
    expect(page.locator(".group")).to_have_count(4)
    expect(page.locator(".answer")).to_have_count(12)

    def many(route: Any) -> None:
        found = route.fetch().json()
        route.fulfill(json={"relations": found["relations"] * 17})

    page.route("**/v1/relations", many)
    sizes: list[int] = []
    page.on(
        "request", lambda asked: sizes.append(len(asked.post_data_json["queries"])) if "predict" in asked.url else None
    )
    page.reload()
    expect(page.locator(".answer")).to_have_count(10)  # with so many relations the most frequent one is asked first
    choose(page, "Relation", "all relations")
    expect(page.locator(".group")).to_have_count(68)
    assert sizes == [1, 32, 32, 4]


@pytest.fixture(scope="module")
def probable(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Predictor]]:
    """A server and a predictor with probabilities of triples, most of which are low."""
    run = shutil.copytree(run_folder, tmp_path_factory.mktemp("probable") / "otters")
    probability_by_hand(lower=1.5).save(run / "checkpoint")
    with serving(run) as address:
        yield address, fnftg.load(run)


LIKELY = 0.05  # as in queries.js


def best_links(predictor: Predictor) -> dict[str, list[float]]:
    """The probabilities of an otter's links, by relation."""
    return {
        relation: [one.probability or 0 for one in predictor.tails("otter", relation, 10)] for relation in RELATIONS
    }


def test_probabilities_of_all_relations_make_one_list(tab: Any, probable: tuple[str, Predictor]) -> None:
    address, predictor = probable
    every = sorted((value for values in best_links(predictor).values() for value in values), reverse=True)
    likely = [value for value in every if value >= LIKELY][:10]
    page = tab(asked_url(address, "otter"))
    page.get_by_role("button", name="Most likely first").click()
    expect(page.locator(".results > ol > .answer")).to_have_count(len(likely))
    shown = [float(text.strip("< %")) for text in page.locator(".answer-value .number").all_inner_texts()]
    assert len(shown) > 1 and shown == pytest.approx([100 * value for value in likely], abs=0.51)
    expect(page.get_by_text("Scores are not probabilities")).to_have_count(0)


def test_relations_without_an_expected_link_are_folded_away_and_counted(
    tab: Any, probable: tuple[str, Predictor]
) -> None:
    address, predictor = probable
    best = {relation: max(values) for relation, values in best_links(predictor).items()}
    likely = sorted((relation for relation in best if best[relation] >= LIKELY), key=lambda one: -best[one])
    others = [relation for relation in best if best[relation] < LIKELY]
    assert (len(likely), len(others)) == (3, 1), best
    page = tab(asked_url(address, "otter"))
    expect(page.locator(".group h3")).to_have_text([RELATIONS[relation] for relation in likely])
    folded = page.locator("details.unlikely")
    expect(folded.locator("summary")).to_have_text("No missing link expected: 1 relation")
    expect(folded.get_by_role("button")).to_have_count(0)  # not to be seen before it is opened
    folded.locator("summary").click()
    expect(folded.get_by_role("button")).to_have_count(1)
    names = {RELATIONS[relation] for relation in others}
    assert {text.strip() for text in folded.get_by_role("button").all_inner_texts()} == names
    expect(folded.locator("li").first).to_contain_text("missing answer: ")
    first = folded.get_by_role("button").first
    relation = next(one for one in others if RELATIONS[one] == first.inner_text().strip())
    first.click()
    expect(page).to_have_url(re.compile(f"relation={relation}"))
    expect(page.locator(".answer")).to_have_count(10)
    expect(page.get_by_text("Probability that the graph lacks an answer:")).to_be_visible()


def test_all_relations_are_folded_away_if_no_link_is_expected(tab: Any, run_folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(run_folder, tmp_path / "otters")
    probability_by_hand(lower=20.0).save(run / "checkpoint")
    with serving(run) as address:
        page = tab(asked_url(address, "otter"))
        expect(page.get_by_text("The graph seems to have all links of this entity.")).to_be_visible()
        expect(page.locator("details.unlikely summary")).to_have_text("Show 4 relations")
        expect(page.locator(".answer")).to_have_count(0)


# Reasons


def test_reasons_are_those_of_the_predictor(tab: Any, address: str, predictor: Predictor) -> None:
    page = tab(asked_url(address, "otter", relation="_hypernym"))
    expect(page.locator(".answer")).to_have_count(10)
    place, answer = next(
        (place, answer) for place, answer in enumerate(predictor.tails("otter", "_hypernym")) if answer.id == "fish"
    )
    page.locator(".answer-main").nth(place).click()
    found = predictor.explain("otter", "_hypernym", answer.id)
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".triple-end")).to_have_text(["otter", answer.name])
    expect(dialog.locator(".figure dd").first).to_have_text(re.compile(rf"^{found.rank:g} of {found.candidates}$"))
    expect(dialog.get_by_text("Is a link missing?")).to_have_count(0)  # nobody knows without probabilities
    words = [word.word for side in (found.query, found.candidate) for word in side.words]
    assert [word.strip() for word in dialog.locator(".word").all_inner_texts()] == words
    drawn = dialog.locator(".edge")
    expect(drawn).to_have_count(min(len(found.query.edges), 9) + min(len(found.candidate.edges), 9))
    strongest = found.query.edges[0]
    row = dialog.locator(".edge", has_text=strongest.neighbour.name).first
    expect(row).to_have_class(f"edge {'for' if strongest.effect >= 0 else 'against'}")
    widths = [float(path.get_attribute("stroke-width")) for path in dialog.locator(".edge .line").all()]
    effects = [abs(edge.effect) for side in (found.query, found.candidate) for edge in side.edges[:9]]
    assert sorted(range(len(widths)), key=widths.__getitem__) == sorted(range(len(effects)), key=effects.__getitem__)
    evidence = found.as_dict()["evidence"]
    assert sum(bool(source["items"]) for source in evidence) >= 2, "several sources of evidence have items"
    expect_evidence(dialog, evidence)
    nearest = [f"{one.head.name} is a kind of → {one.tail.name}" for one in found.nearest]
    training = dialog.locator("section", has_text="Nearest training triples").locator(".near")
    assert [text.strip() for text in training.all_inner_texts()] == nearest
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page).to_have_url(re.compile("relation=_hypernym$"))
    page.evaluate("history.forward()")  # a step within the page: there is no load to wait for, as go_forward does
    expect(page.get_by_role("dialog").locator(".triple")).to_contain_text(answer.name)


def test_reasons_tell_whether_an_answer_is_missing(tab: Any, probable: tuple[str, Predictor]) -> None:
    address, predictor = probable
    page = tab(asked_url(address, "otter", relation="_hypernym"))
    page.locator(".answer-main").first.click()
    answer = predictor.tails("otter", "_hypernym", 1)[0]
    found = predictor.explain("otter", "_hypernym", answer.id)
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("section", has_text="Is a link missing?").locator("li")).to_have_count(2)
    shown = dialog.locator("ul.missing li").all_inner_texts()
    names = ["otter → is a kind of → ?", f"? → is a kind of → {answer.name}"]
    for text, name, query in zip(shown, names, found.queries, strict=True):
        assert text.startswith(name) and text.endswith(" ".join(query.sentences)) and len(query.sentences) >= 2
        assert float(text[len(name) :].split("%")[0]) == pytest.approx(100 * query.probability, abs=0.51)
    expect(dialog.locator(".figure", has_text="Probability")).to_have_count(1)


def expect_evidence(dialog: Any, evidence: list[dict[str, Any]]) -> None:
    """Each source has its title, its sentence, at most five items, and what it adds to the score."""
    sections = dialog.locator("section.evidence")
    expect(sections).to_have_count(len(evidence))
    for section, source in zip(sections.all(), evidence, strict=True):
        expect(section.locator("h3")).to_have_text(source["title"][:1].upper() + source["title"][1:])
        expect(section.locator(".sentence")).to_have_text([source["sentence"]] if source["sentence"] else [])
        items = [
            " ".join(
                ([f"{RELATIONS[step['relation']]} {'→' if step['direction'] == 'out' else '←'}"] if step else [])
                + ([item["entity"]["name"]] if item["entity"] else [])
            )
            for item in source["items"][:5]
            for step in [item["relation"]]
        ]
        assert [text.strip() for text in section.locator(".near").all_inner_texts()] == items
        values = [item["value"] for item in source["items"][:5] if item["value"] is not None]
        expect(section.locator(".number")).to_have_count(len(values))
        for shown in section.locator(".number").all():
            assert shown.get_attribute("title").lower() == (source["value_name"] or "value")
        expect(section.locator(".remark")).to_contain_text("to the score; without this evidence: rank")


def test_any_source_of_evidence_is_drawn_from_what_it_says(tab: Any, address: str, predictor: Predictor) -> None:
    """The page knows no source by its name: these three exist nowhere else."""

    def entity(id: str) -> dict[str, str]:
        return {"id": id, "name": TEXTS[id].split(",")[0], "text": TEXTS[id]}

    effects = {"effect": 0.25, "score_without": -3.5, "rank_without": 4.0}
    side = {"own_attention": None, "edges": [], "words": []}
    evidence = [
        {
            **effects,
            "source": "same_first_letter",
            "title": "same first letter",
            "sentence": f"otter and {SCRIPT} start alike.",
            "value_name": "letters",
            "items": [{"entity": entity(id), "relation": None, "value": 1.0} for id in list(TEXTS)[:7]],
        },
        {
            **effects,
            "effect": -0.5,
            "rank_without": None,
            "source": "paths",
            "title": "paths between the two",
            "sentence": "",
            "value_name": None,
            "items": [
                {"entity": None, "relation": {"relation": "_eats", "direction": "out"}, "value": None},
                {"entity": entity("trout"), "relation": {"relation": "_hypernym", "direction": "in"}, "value": 0.5},
            ],
        },
        {
            **effects,
            "source": "oracle",
            "title": "only a sentence",
            "sentence": "The oracle says so.",
            "value_name": None,
            "items": [],
        },
    ]
    explanation = {
        "head": entity("otter"),
        "relation": {"id": "_hypernym", "name": "is a kind of", "text": "is a kind of"},
        "tail": entity("fish"),
        "asked": "tail",
        "in_graph": False,
        "hidden": False,
        "score": -3.25,
        "rank": 3.0,
        "candidates": 38,
        "probability": None,
        "conditional": None,
        "queries": [],
        "query": {"entity": entity("otter"), **side},
        "candidate": {"entity": entity("fish"), **side},
        "evidence": evidence,
        "nearest": [],
    }
    ExplanationOut.model_validate(explanation)
    page = tab(asked_url(address, "otter", relation="_hypernym"))
    page.route("**/v1/explain", lambda route: route.fulfill(json=explanation))
    page.locator(".answer-main").first.click()
    dialog = page.get_by_role("dialog")
    expect_evidence(dialog, evidence)
    expect(dialog.locator(".evidence .remark")).to_have_text(
        [
            "7 items in all. +0.250 to the score; without this evidence: rank 4.",
            "−0.500 to the score; without this evidence: rank –.",
            "+0.250 to the score; without this evidence: rank 4.",
        ]
    )


# A new entity


def test_predictions_for_a_new_entity_follow_what_is_written(tab: Any, address: str, predictor: Predictor) -> None:
    page = tab(f"{address}/#/new?relation=_hypernym")
    expect(page.get_by_text("No description yet")).to_be_visible()

    def expect_those_of(entity: NewEntity) -> None:
        expect_answers(page, predictor.tails(entity, "_hypernym"))

    page.get_by_label("Description").press_sequentially("beaver, a mammal")
    expect_those_of(NewEntity("beaver, a mammal"))
    page.get_by_label("Description").fill("a fish with fins")
    expect_those_of(NewEntity("a fish with fins"))

    page.get_by_role("button", name="Add a link").click()
    choose(page, "Relation of this link", "eats")
    choose(page, "Entity at the other end", "trout")
    linked = NewEntity("a fish with fins", [("_eats", "trout")])
    expect_those_of(linked)
    page.get_by_role("button", name="reverse it").click()
    turned = NewEntity("a fish with fins", incoming=[("_eats", "trout")])
    expect_those_of(turned)
    expect(page.locator(".preview a.node")).to_have_text(["trout"])
    page.reload()  # all of it is in the address
    expect(field(page, "Entity at the other end")).to_have_value("trout")
    expect_those_of(turned)

    answer = page.locator(".answer-name b").first.inner_text()
    page.locator(".answer-main").first.click()
    expect(page.get_by_role("dialog").locator(".triple-end")).to_have_text(["a fish with fins", answer])
    expect(page.get_by_role("dialog").locator(".edge", has_text="trout").first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove this link").click()
    expect_those_of(NewEntity("a fish with fins"))


def test_an_answer_that_comes_too_late_is_dropped(tab: Any, address: str, predictor: Predictor) -> None:
    page = tab(f"{address}/#/new?relation=_eats")
    held: list[Any] = []
    page.route("**/v1/predict", lambda route: held.append(route) if not held else route.continue_())
    page.get_by_label("Description").fill("something slow")
    page.wait_for_timeout(450)
    assert len(held) == 1
    page.get_by_label("Description").fill("a fish")
    expected = predictor.tails(NewEntity("a fish"), "_eats")
    expect_answers(page, expected)
    held[0].continue_()
    page.wait_for_timeout(200)
    expect_answers(page, expected)


# Elsewhere


def test_the_question_can_be_asked_elsewhere(tab: Any, address: str, run_folder: Path, capsys: Any) -> None:
    text, edge = quote("it's a fish"), quote('["out","_hypernym","fish"]')
    page = tab(f"{address}/#/new?relation=_eats&text={text}&edge={edge}")
    expect(page.locator(".answer").first).to_be_visible()
    page.get_by_text("Copy as JSON, curl or Python").click()
    body = {
        "queries": [{"head": {"text": "it's a fish", "edges": [["_hypernym", "fish"]]}, "relation": "_eats"}],
        "k": 10,
        "known": False,
    }
    assert json.loads(page.locator("pre").inner_text()) == body
    page.get_by_role("tab", name="curl").click()
    command = page.locator("pre").inner_text()
    assert command.startswith(f"curl {address}/v1/predict ")
    assert json.loads(command.split("-d '")[1].removesuffix("'").replace("'\\''", "'")) == body
    page.get_by_role("tab", name="curl").press("ArrowRight")
    program = page.locator("pre").inner_text().replace('"RUN"', repr(str(run_folder)))
    capsys.readouterr()
    exec(program, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10 and answers(page)[0] in "\n".join(printed[:2])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("import fnftg")


# When something is wrong


@expecting("ERR_FAILED|ERR_CONNECTION")
def test_a_server_that_is_gone_is_told_and_asked_again(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "otter", relation="_eats"))
    expect(page.locator(".answer").first).to_be_visible()
    page.route("**/v1/**", lambda route: route.abort())
    page.get_by_text("? → otter").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not respond")
    field(page, "Search for an entity").fill("trout")
    expect(page.get_by_role("option")).to_contain_text("The server does not respond")
    page.unroute("**/v1/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer").first).to_be_visible()
    page.route("**/v1/**", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("The server does not respond")
    page.unroute("**/v1/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer").first).to_be_visible()


@expecting("422|404")
def test_what_the_server_refuses_is_said_beside_its_field(tab: Any, address: str) -> None:
    edge = quote('["in","_eats","troutt"]')
    page, lookups = tab(address), []
    page.route("**/v1/entities/troutt*", lambda route: lookups.append(route))  # noqa: PLW0108
    page.goto(f"{address}/#/new?text=heron&edge={edge}")
    problem = page.locator(".edge-row .problem:visible")
    expect(problem).to_contain_text("did you mean trout")
    with page.expect_response("**/v1/entities/troutt*"):  # says less, and comes last
        lookups[0].continue_()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(problem).to_contain_text("did you mean trout")
    expect(field(page, "Entity at the other end")).to_have_attribute("aria-invalid", "true")
    choose(page, "Entity at the other end", "trout")
    expect(page.locator(".answer").first).to_be_visible()
    expect(page.locator(".problem:visible")).to_have_count(0)
    page.goto(asked_url(address, "otter", relation="_drinks"))
    expect(page.locator(".question .problem:visible")).to_contain_text("no relation '_drinks'")


@expecting("429")
def test_a_busy_server_is_asked_again_when_it_says(tab: Any, address: str) -> None:
    page = tab(asked_url(address, "otter", relation="_eats"))
    expect(page.locator(".answer").first).to_be_visible()
    times: list[float] = []

    def busy(route: Any) -> None:
        times.append(time.monotonic())
        if len(times) > 1:
            return route.continue_()  # type: ignore[no-any-return]
        refusal = {"error": {"code": "busy", "message": "Too many requests wait.", "field": None}}
        return route.fulfill(status=429, headers={"Retry-After": "1"}, json=refusal)  # type: ignore[no-any-return]

    page.route("**/v1/predict", busy)
    page.get_by_text("Show known links").click()
    expect(page.locator("#toast")).to_have_text("The server is busy. Trying again in 1 s…")
    expect(page.locator(".answer.known").first).to_be_visible()
    expect(page.locator("#toast")).to_be_hidden()
    assert len(times) == 2 and 0.9 < times[1] - times[0] < 3


@expecting("401")
def test_a_token_opens_the_page_and_one_that_is_missing_is_asked_for(tab: Any, run_folder: Path) -> None:
    with serving(run_folder, token="very secret") as address:
        page = tab(f"{address}/?token=very%20secret#/entity/otter")
        expect(page.locator(".answer").first).to_be_visible()
        assert "secret" not in page.url and page.url.endswith("#/entity/otter")
        page.context.clear_cookies()
        page.get_by_text("? → otter").click()
        expect(page.get_by_role("alert")).to_contain_text("This server requires a token")
        expect(page.get_by_role("alert")).to_contain_text("/?token=…")
        page.get_by_label("Token").fill("very secret")
        page.get_by_role("button", name="Open", exact=True).click()
        expect(page.locator(".answer").first).to_be_visible()
        assert "direction=heads" in page.url


# For everyone


def test_the_keyboard_alone_does_it(tab: Any, address: str) -> None:
    page = tab(address)
    expect(page.locator(".chip").first).to_be_visible()
    page.keyboard.press("/")
    expect(field(page, "Search for an entity")).to_be_focused()
    page.keyboard.type("fish")
    expect(page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("listbox")).to_be_visible()
    active = field(page, "Search for an entity").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_contain_text("fish")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="fish")).to_be_visible()
    expect(page.locator(".answer").first).to_be_visible()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.answer-main')"):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").locator(".word").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.matches('.answer-main')"), "the focus is where it was"
    field(page, "Relation").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("option")).to_have_count(5)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(field(page, "Relation")).to_have_value("is a kind of")


def test_nothing_is_wider_than_a_phone(tab: Any, address: str) -> None:
    page = tab(address, viewport={"width": 360, "height": 740})
    edge = quote('["out","_eats","trout"]')
    views = [
        "",
        "#/entity/sea-otter",
        "#/entity/evil",
        f"#/new?text=beaver&edge={edge}",
        "#/entity/otter?relation=_eats&why=fish",
    ]
    for view in views:
        page.goto(f"{address}/{view}")
        expect(page.locator("dialog .word, .answer, .chip").first).to_be_visible()
        wider = page.evaluate(
            "[document.documentElement, ...document.querySelectorAll('.card, dialog, .reasons')]"
            ".filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.className || one.tagName)"
        )
        assert wider == [], (view, wider)


def test_light_and_dark_follow_the_system_until_one_is_chosen(tab: Any, address: str) -> None:
    def lightness(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    page = tab(address, color_scheme="dark")
    assert lightness(page) < 200
    page.get_by_role("button", name="Switch to the light theme").click()
    assert lightness(page) > 600
    page.reload()
    assert lightness(page) > 600
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Switch to the dark theme").click()
    assert lightness(page) < 200
