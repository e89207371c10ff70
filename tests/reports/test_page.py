"""The page's document and its file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports import gather, page_data, page_html, plain_rows, summarise, write_page
from idiolect.reports import write_page as write_page_function
from idiolect.reports.page.page_data import as_json
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import client_labels, client_table, paired_comparisons, tradeoff

from .invented import CLIENTS, METHODS, write_invented_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("invented")
    write_invented_runs(folder)
    return gather([folder], print)


@pytest.fixture(scope="module")
def page(runs: list[Run]) -> str:
    return page_html(runs, ["</script><img src=x>"])


@pytest.fixture(scope="module")
def document(runs: list[Run]) -> dict:
    return json.loads(as_json(page_data(runs)))


def test_document_agrees_with_the_table_and_the_statistics(document: dict, runs: list[Run]) -> None:
    (scene,) = document["scenes"]
    lines = scene["measured"]["accuracy"]["leaderboard"]
    labels = [method["label"] for method in scene["methods"]]
    summary = summarise(runs).set_index("method").loc[labels].reset_index()
    points = tradeoff(group_runs(runs)).set_index("method").loc[labels].reset_index()
    assert list(summary["personal_accuracy"]) == sorted(summary["personal_accuracy"], reverse=True)
    for key, column in {
        "personal": summary["personal_accuracy"],
        "personal_sd": summary["personal_accuracy_sd_seeds"],
        "worst": summary["worst_tenth"],
        "sd_clients": summary["sd_clients"],
        "global": points["aggregation"],
        "global_sd": points["aggregation_sd_seeds"],
    }.items():
        found = np.array([np.nan if line[key] is None else line[key] for line in lines])
        np.testing.assert_allclose(found, column, rtol=1e-5)
    assert [cost["up"] for cost in scene["costs"]] == pytest.approx(list(summary["bytes_up"]))
    assert all(line["low"] < line["personal"] < line["high"] for line in lines)


def test_page_rounds_as_the_table_does(document: dict, runs: list[Run]) -> None:
    header, *rows = plain_rows(summarise(runs))
    (scene,) = document["scenes"]
    for method, line in zip(scene["methods"], scene["measured"]["accuracy"]["leaderboard"], strict=True):
        cells = dict(zip(header, next(row for row in rows if row[0] == method["label"]), strict=True))
        text = line["text"]
        assert f"{text['personal']} ± {text['personal_sd']}" == cells["Personalised %"]
        assert text["sd_clients"] == cells["SD %"]
        assert cells["Global %"].startswith(text["global"]) and cells["Worst tenth %"].startswith(
            text["worst"]
        )


def test_document_has_every_client_as_the_statistics_do(document: dict, runs: list[Run]) -> None:
    (scene,) = document["scenes"]
    table = client_table(group_runs(runs), metric="loss")[[method["label"] for method in scene["methods"]]]
    found = scene["measured"]["loss"]["clients"]
    assert found["clients"] == client_labels(table.index) and len(table) == CLIENTS * 3
    np.testing.assert_allclose(np.array(found["values"]).T, table, rtol=1e-5)


def test_pairs_are_those_of_the_comparisons(document: dict, runs: list[Run]) -> None:
    (scene,) = document["scenes"]
    labels = [method["label"] for method in scene["methods"]]
    expected = paired_comparisons(group_runs(runs), metric="ece").set_index(["method", "other"])
    pairs = scene["measured"]["ece"]["pairs"]
    assert len(pairs) == len(expected) == 28
    for one, other, difference, low, _, p, _ in pairs:
        forward = (labels[one], labels[other]) in expected.index
        line = expected.loc[(labels[one], labels[other]) if forward else (labels[other], labels[one])]
        assert difference == pytest.approx(line["difference"] if forward else -line["difference"], rel=1e-4)
        assert low == pytest.approx(line["low"] if forward else -line["high"], rel=1e-4)
        assert p == pytest.approx(line["p_holm"], rel=1e-4)


def test_same_letters_are_shared_by_methods_that_do_not_differ(document: dict) -> None:
    (scene,) = document["scenes"]
    lines = scene["measured"]["accuracy"]["leaderboard"]
    for one, other, *_, p, _ in scene["measured"]["accuracy"]["pairs"]:
        assert bool(set(lines[one]["letters"]) & set(lines[other]["letters"])) == (p >= 0.05)


def test_only_the_first_manifest_of_a_method_is_whole(document: dict, runs: list[Run]) -> None:
    (scene,) = document["scenes"]
    first, second, _ = (line for line in scene["runs"] if line["method"] == 0)
    assert "spec" in first["manifest"] and "spec" not in second["manifest"]
    whole = {**first["manifest"], **second["manifest"]}
    original = next(run for run in runs if run.manifest["name"] == second["name"]).manifest
    assert set(whole) - set(second["lacks"]) == set(original) - {"class_counts"}


def test_methods_with_other_seeds_are_not_paired(make_run) -> None:
    runs = [make_run("A", 0, {(1, "after"): [0.4, 0.8]}), make_run("B", 1, {(1, "after"): [0.4, 0.8]})]
    assert page_data(runs)["scenes"][0]["measured"]["accuracy"]["pairs"] == []


def test_worst_tenth_of_a_loss_is_the_highest(document: dict) -> None:
    for line in document["scenes"][0]["measured"]["loss"]["leaderboard"]:
        assert line["worst"] > line["personal"]


def test_bytes_add_up_over_rounds(document: dict, runs: list[Run]) -> None:
    (scene,) = document["scenes"]
    labels = [method["label"] for method in scene["methods"]]
    found = scene["measured"]["accuracy"]["bytes"][labels.index("MAP")]
    one = next(run for run in runs if run.manifest["label"] == "MAP")
    assert found["down"][-1] == one.rounds["bytes_down"].sum() and found["round"][-1] == 30
    assert found["up"][4] == 5 * 8 * 40_000


def test_curves_are_thinned_but_keep_both_ends(make_run) -> None:
    personal = {(number, "after"): [number / 1000] for number in range(1, 701)}
    (scene,) = page_data([make_run("Long", personal=personal)])["scenes"]
    found = scene["measured"]["accuracy"]["curves"][0]["personal"]
    assert len(found["round"]) == 120 and (found["round"][0], found["round"][-1]) == (1, 700)
    assert found["value"] == pytest.approx([number / 1000 for number in found["round"]])


def test_metrics_without_a_direction_are_left_out(make_run) -> None:
    found = page_data([make_run("A", personal={(1, "after"): [0.4, 0.8]})])
    assert [line["name"] for line in found["scenes"][0]["metrics"]] == ["accuracy"]


def test_nothing_in_the_data_can_end_the_script(page: str) -> None:
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert inside is not None
    labels = [method["label"] for method in json.loads(inside[1])["scenes"][0]["methods"]]
    assert METHODS[-1][0] in labels
    assert "<b>" not in page and "<img" not in page


def test_page_names_no_other_place(page: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|<script[^>]+src=|@import|url\(", page)


def test_same_runs_give_the_same_page(runs: list[Run], page: str) -> None:
    assert page_html(runs, ["</script><img src=x>"]) == page


def test_page_of_runs_without_measurements_still_appears(make_run, tmp_path: Path) -> None:
    page = write_page([make_run("Empty")], tmp_path / "new" / "report.html")
    assert "Empty" in page.read_text(encoding="utf-8")


def test_too_large_a_page_is_refused(make_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_page_function.__globals__, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="fewer runs"):
        write_page([make_run("A", personal={(1, "after"): [0.4]})], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_page_where_a_folder_is_is_refused(make_run, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        write_page([make_run("A", personal={(1, "after"): [0.4]})], tmp_path / "report.html")
