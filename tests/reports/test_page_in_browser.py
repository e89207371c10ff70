"""The page as a reader meets it: in a browser, wide and narrow, light and dark."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from idiolect.records import Run
from idiolect.reports import gather, write_page
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import change_histogram, changes

from .browser import CHROMIUM, Browser
from .conftest import maker
from .invented import METHODS, METRICS, write_invented_runs

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

CELLS = "[...document.querySelectorAll('#leaderboard tbody tr')].map(r => r.children[%d].textContent)"
METHOD, PERSONAL, GLOBAL = 0, 1, 4
PICTURES = [
    "curves",
    "differences",
    "heat-map",
    "change",
    "fairness",
    "calibration",
    "tradeoff",
    "communication",
    "targets",
    "degradation",
    "profile",
    "teachers",
    "partition",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("invented")
    write_invented_runs(folder)
    return gather([folder], print)


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(runs, tmp_path_factory.mktemp("page") / "report.html", ["x <b>is</b> damaged"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with ExitStack() as until:
        yield Browser(until)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_draws_everything_alone_and_quickly(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    for picture in PICTURES:
        assert browser.value(f"document.querySelector('#{picture} svg').children.length") > 5
        assert browser.value(f"document.querySelectorAll('#{picture} .beside .file').length") == 3
    assert browser.value("performance.getEntriesByName('first-picture')[0].startTime") < 2000
    assert browser.value("document.documentElement.scrollWidth") <= width
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 3 * 60) is dark
    assert page.stat().st_size < 8_000_000


@pytest.mark.slow
def test_page_of_three_scenes_is_small_and_quick(browser: Browser, tmp_path: Path) -> None:
    """Three scenes, twelve methods, five seeds, forty clients, thirty rounds, two metrics: 180 runs."""
    make, draw, runs = maker(tmp_path / "runs"), np.random.default_rng(0), []
    for dataset in ("digits", "letters", "signs"):
        for place in range(12):
            for seed in range(5):
                climb = (0.6 + 0.02 * place) * (1 - 0.8 * np.exp(-np.arange(1, 31) / (4 + place)))
                scores = np.clip(climb[:, None] + draw.normal(0, 0.07, (30, 40)), 0, 1)
                personal = {(number, "after"): list(line) for number, line in enumerate(scores, 1)}
                server = dict(enumerate(climb.tolist(), 1))
                runs.append(make(f"M{place}", seed, personal, server, dataset=dataset, metrics=METRICS))
    large = write_page(runs, tmp_path / "large.html")
    assert large.stat().st_size < 2_000_000
    browser.open(large, 1280)
    assert browser.value("performance.getEntriesByName('first-picture')[0].startTime") < 1000
    assert browser.value("document.querySelectorAll('#matrix tbody tr').length") == 12
    assert browser.complaints() == []


def test_names_with_signs_stay_names(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    assert METHODS[-1][0] in browser.value(CELLS % METHOD)
    assert browser.value("document.querySelectorAll('main b, header b').length") == 0
    assert "x <b>is</b> damaged" in browser.value("document.querySelector('.passed-over').textContent")


def test_heading_sorts_both_ways(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    assert browser.value(CELLS % METHOD)[0] == "ScaMAP"
    browser.click('#leaderboard [data-key="personal"]')
    rising = [float(text.split()[0]) for text in browser.value(CELLS % PERSONAL)]
    assert rising == sorted(rising) and rising[0] < rising[-1]
    browser.click('#leaderboard [data-key="personal"]')
    assert [float(text.split()[0]) for text in browser.value(CELLS % PERSONAL)] == rising[::-1]
    browser.click('#leaderboard [data-key="label"]')
    assert browser.value(CELLS % METHOD)[0] == "FedAvg"
    assert browser.value("document.querySelector('#leaderboard th').getAttribute('aria-sort')") == "ascending"
    browser.click('#leaderboard [data-key="global"]')
    assert browser.value(CELLS % GLOBAL)[-2:] == ["\u2013", "\u2013"]


def test_filters_leave_what_they_name(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    lines = browser.value("document.querySelectorAll('#curves .line').length")
    browser.click("#filter")
    browser.type("map companion")
    assert sorted(browser.value(CELLS % METHOD)) == ["MAP", "ScaMAP"]
    assert browser.value("document.querySelectorAll('#curves .line').length") == 4 < lines
    browser.type(" nobody")
    assert browser.value("document.querySelector('#leaderboard .body').textContent").startswith("No method")
    assert browser.complaints() == []


def test_groups_that_are_too_many_for_letters_are_told_in_a_word(
    browser: Browser, tmp_path: Path, monkeypatch
) -> None:
    draws = {"A": [0.9, 0.901, 0.899], "B": [0.7, 0.85, 0.8], "C": [0.6, 0.601, 0.599]}
    make = maker(tmp_path / "runs")
    runs = [
        make(name, seed, {(1, "after"): [value, value]})
        for name, values in draws.items()
        for seed, value in enumerate(values)
    ]
    shown = (
        "[...document.querySelectorAll('#leaderboard tbody tr')].map(r => r.children[2].textContent.trim())"
    )
    browser.open(write_page(runs, tmp_path / "letters.html"), 1280)
    assert [text.replace(" ", "") for text in browser.value(shown)] == ["a", "ab", "b"]
    monkeypatch.setattr("idiolect.reports.scene_verdict.MOST_GROUPS", 1)
    browser.open(write_page(runs, tmp_path / "word.html"), 1280)
    assert browser.value(shown) == ["best", "best", ""]
    assert browser.value("document.querySelectorAll('#leaderboard .letter').length") == 0
    assert browser.value("document.querySelectorAll('#leaderboard td.best').length") == 2
    assert "too many groups for letters" in browser.value(
        "document.querySelector('#leaderboard').textContent"
    )
    assert browser.complaints() == []


def choose(browser: Browser, selector: str, value: str) -> None:
    browser.value(
        f"(() => {{ const s = document.querySelector('{selector}'); s.value = {json.dumps(value)}; "
        "s.dispatchEvent(new Event('change')); })()"
    )


def test_metric_changes_what_is_measured_and_what_is_best(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    choose(browser, "#metric", "loss")
    values = [float(text) for text in (t.split()[0] for t in browser.value(CELLS % PERSONAL))]
    assert values == sorted(values) and max(values) < 1
    assert browser.value("document.querySelectorAll('#leaderboard td.best').length") >= 1
    choose(browser, "#predictor", "global")
    assert sorted(browser.value(CELLS % METHOD)) == ["FedAvg", "SCAFFOLD"]
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_pointing_at_a_mark_shows_its_numbers(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.value("document.getElementById('tooltip').hidden")
    for picture, words in [
        ("#tradeoff .mark", "personalised"),
        ("#partition .bubble", "sample"),
        ("#heat-map rect", "client 0"),
        ("#change .bar", "change from"),
        ("#curves .panels .mark", "round"),
        ("#targets .panels .mark", "to reach"),
        ("#degradation .panels .mark", "points"),
        ("#profile .panels .mark", "coefficient"),
        ("#teachers .panels .mark", "client 0: round"),
    ]:
        x, y = browser.middle_of(picture)
        browser.move(x, y)
        assert not browser.value("document.getElementById('tooltip').hidden"), picture
        assert words in browser.value("document.getElementById('tooltip').textContent")
        assert browser.value("document.getElementById('tooltip').getBoundingClientRect().right") <= width


def test_pointing_gives_the_recorded_number(browser: Browser, page: Path, runs: list[Run]) -> None:
    browser.open(page, 1280)
    browser.move(*browser.middle_of("#heat-map rect"))
    first = browser.value(CELLS % METHOD)[0]
    run = next(run for run in runs if (run.manifest["label"], run.manifest["seed"]) == (first, 0))
    value = run.rows.query("client == 0 and metric == 'accuracy' and round == 30")["value"].iloc[-1]
    assert f"{first}data seed 0, client 0: {100 * value:.2f} %" == browser.value(
        "document.getElementById('tooltip').textContent"
    )


def test_arrow_keys_walk_from_mark_to_mark(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    browser.value("document.querySelector('#heat-map svg').focus({preventScroll: false})")
    browser.press("ArrowRight")
    first = browser.value("document.getElementById('tooltip').textContent")
    browser.press("ArrowRight")
    second = browser.value("document.getElementById('tooltip').textContent")
    browser.press("ArrowDown")
    third = browser.value("document.getElementById('tooltip').textContent")
    assert "client 0" in first and "client 1" in second and "client 1" in third and second != third
    browser.press("Escape")
    assert browser.value("document.getElementById('tooltip').hidden")


def test_pictures_of_some_methods_have_a_legend_of_those(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    names = "[...document.querySelectorAll('#%s .legend button')].map(b => b.textContent)"
    assert browser.value(names % "teachers") == ["PersFL"]
    assert browser.value(names % "profile") == [METHODS[-1][0]]
    assert len(browser.value(names % "degradation")) == 8
    browser.click("#teachers .legend button")
    assert "None of the methods" in browser.value("document.querySelector('#teachers .body').textContent")
    assert browser.complaints() == []


def test_page_without_extras_leaves_their_sections_out(browser: Browser, make_run, tmp_path: Path) -> None:
    runs = [make_run(label, personal={(1, "after"): [0.4, 0.8]}) for label in ("A", "B")]
    browser.open(write_page(runs, tmp_path / "plain.html"), 390)
    ids = browser.value("[...document.querySelectorAll('section')].map(s => s.id)")
    assert "curves" in ids and not {"degradation", "profile", "teachers"} & set(ids)
    assert browser.complaints() == []


def test_ranks_appear_with_several_scenes(browser: Browser, make_run, tmp_path: Path) -> None:
    runs = [
        make_run(label, personal={(1, "after"): [level, level]}, dataset=dataset)
        for dataset in ("digits", "letters")
        for label, level in (("A", 0.9), ("B", 0.7), ("C", 0.5))
    ]
    browser.open(write_page(runs, tmp_path / "scenes.html"), 390)
    names = browser.value("[...document.querySelectorAll('#ranks .name')].map(t => t.textContent)")
    assert names == ["A", "B", "C"]
    browser.move(*browser.middle_of("#ranks .mark"))
    assert browser.value("document.getElementById('tooltip').textContent") == "Amean rank 1.00"
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def two_scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    make, runs = maker(folder), []
    for dataset, levels in (("digits", (0.9, 0.7, 0.5)), ("letters", (0.5, 0.8, 0.6))):
        for label, level in zip("ABC", levels, strict=True):
            for seed in range(3):
                values = [level - 0.01 * seed + 0.001 * ord(label) * seed, level]
                runs.append(make(label, seed, {(1, "after"): values}, dataset=dataset))
    return write_page(runs, folder / "report.html")


def test_every_section_follows_the_scene_of_the_address(browser: Browser, two_scenes: Path) -> None:
    browser.open(two_scenes, 1280)
    assert browser.value(CELLS % METHOD)[0] == "A"
    assert browser.value("document.querySelectorAll('#matrix tbody tr').length") == 3
    browser.value("location.hash = '#scene=letters&at=differences'")
    browser.wait_for(
        "document.getElementById('main').dataset.scene === 'letters' && document.body.dataset.drawn === 'all'"
    )
    assert browser.value(CELLS % METHOD)[0] == "B"
    assert browser.value("document.getElementById('scene-title').textContent") == "letters"
    assert browser.value("document.getElementById('scene').value") == "letters"
    assert browser.value("Math.abs(document.getElementById('differences').getBoundingClientRect().top)") < 200
    assert "Difference from B" in browser.value("document.querySelector('#differences svg').textContent")
    links = browser.value("[...document.querySelectorAll('#contents a')].map(a => a.getAttribute('href'))")
    assert "#scene=letters&at=curves" in links and len(links) == len(set(links)) > 8
    choose(browser, "#scene", "digits")
    browser.wait_for("document.getElementById('main').dataset.scene === 'digits'")
    assert browser.value(CELLS % METHOD)[0] == "A"
    words = browser.value("document.getElementById('findings').textContent")
    assert "No method has the best mean in every scene: " in words and "B leads with" in words
    assert browser.complaints() == []


def test_pictures_are_saved_as_svg_and_png(browser: Browser, two_scenes: Path) -> None:
    browser.open(two_scenes, 1280)
    text = browser.value("pictureOf(document.querySelector('#curves .body')).text")
    assert (
        text.startswith("<svg") and text.count("<svg") >= 5 and "var(--" not in text and "class=" not in text
    )
    address = browser.value("pngAddress(pictureOf(document.querySelector('#curves .body')))")
    assert address.startswith("data:image/png;base64,") and len(address) > 5000
    assert browser.complaints() == []


def test_print_is_light_whole_and_without_controls(browser: Browser, two_scenes: Path) -> None:
    browser.open(two_scenes, 1280, dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    style = "getComputedStyle(document.querySelector('%s')).%s"
    assert browser.value(style % ("body", "backgroundColor")) == "rgb(255, 255, 255)"
    assert (
        browser.value(style % ("#controls", "display")) == browser.value(style % ("nav", "display")) == "none"
    )
    assert browser.value(style % ("#curves .beside", "display")) == "none"
    # Chromium repeats a heading on the next page only if it has no boxes inside
    assert browser.value(style % ("#leaderboard th button", "display")) == "contents"
    assert browser.value("document.querySelector('#partition, #differences').offsetHeight") > 100
    browser.call("Emulation.setEmulatedMedia", media="")


def test_legend_hides_a_method_and_keeps_the_focus(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    lines = "document.querySelectorAll('#curves .line').length"
    before = browser.value(lines)
    browser.click("#curves .legend button")
    assert browser.value(lines) < before
    assert browser.value("document.activeElement.getAttribute('aria-pressed')") == "false"


def test_change_histogram_is_that_of_the_statistics(browser: Browser, page: Path, runs: list[Run]) -> None:
    browser.open(page, 1280)
    groups = group_runs(runs)
    labels = browser.value("everything.scenes[0].methods.map(m => m.label)")
    for method, reference in [("MAP", "Local"), ("FedAvg", "FedPer")]:
        choose(browser, "#change-method", str(labels.index(method)))
        choose(browser, "#change-reference", str(labels.index(reference)))
        found = change_histogram(changes(groups[method], groups[reference]))
        drawn = browser.value("[...document.querySelectorAll('#change .on-bar')].map(t => +t.textContent)")
        assert drawn == [count for count in found.counts.tolist() if count]
        text = browser.value("document.querySelector('#change .summary-line').textContent")
        assert text.startswith(f"{found.below} of 120 clients") and "(Holm): p " in text


def test_download_holds_the_numbers_of_the_picture(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    browser.value("document.querySelector('#tradeoff a[download]').focus()")
    address = browser.value("document.querySelector('#tradeoff a[download]').href")
    rows = list(csv.DictReader(io.StringIO(unquote(address.partition(",")[2]))))
    assert [row["method"] for row in rows].count(METHODS[-1][0]) == 1 and len(rows) == len(METHODS)
    browser.click("#tradeoff summary")
    browser.wait_for("document.querySelectorAll('#tradeoff tbody tr').length === 8")
