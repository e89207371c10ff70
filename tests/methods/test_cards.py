"""Cards say what the code does: traffic, state, defaults, and pages that are up to date."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from idiolect import UserError, methods, register
from idiolect.cli import TINY
from idiolect.core import Method, Part, chain
from idiolect.engines import EngineChoice, LoopEngine
from idiolect.experiments import Simulation, prepare, with_settings
from idiolect.methods.cards.elsewhere import ELSEWHERE
from idiolect.methods.cards.method_card import KEPT
from idiolect.methods.catalogue import METHODS, PARTS
from idiolect.parts import average, proximal
from idiolect.reproduction.measured_beside_published import measured_section

PAGES = Path(__file__).parents[2] / "docs" / "methods"
NAMES = methods.names()

TRAFFIC = {
    "local": ("0", "0"),
    "fednova": ("P", "P + 1"),
    "scaffold": ("2P", "2P"),
    "scars": ("2P", "2P"),
    "scamap": ("2P", "2P"),
    "fedcurv": ("3P", "3P"),
    "fedper": ("P_B", "P_B"),
    "fedrep": ("P_B", "P_B"),
    "fedbabu": ("P_B", "P_B"),
    "fedcp": ("P + 2d d + 6d", "P + 2d d + 6d"),
    "gpfl": ("P_B + K d + 2d d + 6d", "P_B + K d + 2d d + 6d"),
    "fedas": ("P_B", "P_B"),
    "feddbe": ("P + d + 1", "P + d"),
    "lg_fedavg": ("P_H", "P_H"),
    "fedfu": ("P + d", "P + d"),
    "fedproto": ("K d", "n_obs (d + 1)"),
    "fedfomo": ("5P + 5", "P + 10"),
    "fedpac": ("P + K d", "P + K d + 1 + n_obs (d + 1)"),
    "fedem": ("3P", "3P"),
    "fedgh": ("P_H", "n_obs (d + 1)"),
    "feddistill": ("K K + K", "n_obs (K + 1)"),
    "fedcac": ("P", "2P"),
    "cfl": ("P + 1", "P"),
    "ifca": ("2P", "P + 2"),
    "apple": ("6P + 11", "P + 11"),
    "floco": ("P + 9 K d + 11", "P + 9 K d"),
    "fedgen": ("P + 2112 + K 64 + d 64 + d + K", "P + K"),
}  # all others P down and P up

SERVER = {
    "scaffold": "P",
    "scars": "P",
    "scamap": "P",
    "feddyn": "P",
    "fedcurv": "2P",
    "fedavgm": "P",
    "fedadagrad": "2P",
    "fedadam": "2P",
    "fedyogi": "2P",
    "fedproto": "K d",
    "fedpac": "K d",
    "fedfu": "d",
    "feddistill": "K K + K",
    "fedcp": "2d d + 6d",
    "gpfl": "K d + 2d d + 6d",
    "feddbe": "d + 1",
    "fedem": "2P",
    "pfedhn": "101P + 21600",
    "fedcac": "1",
    "cfl": "16P + 9",
    "ifca": "P",
    "floco": "9 K d + 2 10 K d + 10 10 K d + 2",
    "fedgen": "2112 + K 64 + d 64 + d + K",
}
CLIENT = {
    "local": "P",
    "fedproto": "P",
    "fedamp": "P",
    "pfedsim": "P + 1",
    "fedfomo": "P",
    "fedem": "3",
    "ifca": "1",
    "apple": "P, P + 1",
    "scaffold": "P",
    "scars": "P",
    "feddyn": "P",
    "fedcurv": "2P + 1",
    "moon": "P + 1",
    "fedper": "P_H",
    "fedrep": "P_H",
    "fedpac": "P_H",
    "fedbabu": "P_H",
    "fedcp": "P_H",
    "gpfl": "P_H",
    "fedgh": "P_B",
    "feddistill": "P, K K + 1",
    "fedas": "P_H, K d + 1",
    "feddbe": "d",
    "fedala": "2P_H + 1",
    "lg_fedavg": "P_B",
    "flda": "P + d + 1",
    "feddml": "P",
    "fedkd": "P + d d",
    "apfl": "P + 1",
    "ditto": "P",
    "dittors": "P",
    "pfedme": "P",
    "fedrod": "K d",
    "fedphp": "P + 1",
    "map": "P + 1",
    "scamap": "P, P + 1",
    "persfl": "P + 2",
    "persfl_gd": "P + 2",
    "superfed_mm": "P",
    "superfed_lm": "P",
}

PERSONALISES = {
    "layers": {
        "fedper",
        "fedrep",
        "fedpac",
        "lg_fedavg",
        "fedrod",
        "fedcp",
        "gpfl",
        "fedgh",
        "fedas",
        "feddbe",
        "fedbn",
        "fedala",
    },
    "everything": {"local", "fedproto", "fedfomo", "feddistill", "apple"},
    "download": {"fedamp", "fedcac", "pfedhn", "pfedsim"},
    "clusters": {"cfl", "ifca"},
    "companion": {"ditto", "dittors", "feddml", "fedkd", "fedphp", "map", "scamap", "pfedme"},
    "mixture": {"apfl", "fedem", "flda", "floco", "superfed_mm", "superfed_lm"},
    "after-training": {
        "fedavg_lu",
        "fedprox_lu",
        "perfedavg_fo",
        "perfedavg_hf",
        "persfl",
        "persfl_gd",
        "fedbabu",
        "knn_per",
    },
}


def counts(kept: dict[str, str]) -> str:
    """The numbers at the end of what is kept; words alone are of what comes later."""
    found = [text.rpartition(": ")[2] for text in kept.values() if re.search(r": [\dPKd]", text)]
    return ", ".join(found)


def value(symbols: str, **sizes: int) -> int:
    """What a sum of symbols is on a network of these sizes."""
    spelt = re.sub(r"(?<=[\w)]) (?=[(\w])", " * ", re.sub(r"(\d)(?=[A-Za-z])", r"\1 * ", symbols))
    return eval(spelt, {}, sizes)


# ---- what the cards say


@pytest.mark.parametrize("name", NAMES)
def test_card_counts_the_traffic_of_the_papers(name):
    found = methods.card(name)
    assert (found.down, found.up) == TRAFFIC.get(name, ("P", "P"))


@pytest.mark.parametrize("name", NAMES)
def test_card_counts_the_state_of_the_papers(name):
    found = methods.card(name)
    assert counts(found.server_keeps) == SERVER.get(name, "")
    assert counts(found.client_keeps) == CLIENT.get(name, "")


@pytest.mark.parametrize("name", NAMES)
def test_symbols_are_the_bytes_of_a_run(name):
    text = "feddf(steps=1)" if name == "feddf" else name
    setting = prepare(with_settings(TINY, {"method": text}), EngineChoice("loop", "cpu", ""))
    run = Simulation.start(setting, LoopEngine(setting.work))
    run.advance()
    (row,) = run.rounds.table().to_pylist()
    params, structure = setting.initial(0).params, setting.task.structure
    last = structure.n_units - 1
    head = sum(p.numel() for n, p in params.items() if structure.unit_of[n] == last)
    body = sum(p.numel() for n, p in params.items() if structure.unit_of[n] != last)
    sizes = {"P": head + body, "P_H": head, "P_B": body, "d": structure.n_features, "K": structure.n_classes}
    held = [int((setting.work.facts(client).class_counts > 0).sum()) for client in range(3)]
    found = methods.card(name)
    receivers = 6 if "persfl" in name else 3  # everyone to score, the cohort of all to begin with
    assert row["bytes_down"] == 4 * receivers * value(found.down, **sizes)
    most = 4 * sum(value(found.up, **sizes, n_obs=n) for n in held)
    assert (
        0 < row["bytes_up"] < most if "the most that it can be" in found.traffic else row["bytes_up"] == most
    )


@pytest.mark.parametrize("name", NAMES)
def test_card_says_what_is_personal(name):
    expected = next((kind for kind, members in PERSONALISES.items() if name in members), "nothing")
    assert methods.card(name).personalises == expected


@pytest.mark.parametrize("name", NAMES)
def test_card_defaults_are_those_of_the_signature(name):
    printed = dict(re.findall(r"^- `(\w+) = (.+?)`: .", methods.page(methods.card(name)), re.MULTILINE))
    signature = inspect.signature(METHODS[name].make).parameters
    assert printed == {option: repr(parameter.default) for option, parameter in signature.items()}


@pytest.mark.parametrize("name", NAMES)
def test_card_is_complete(name):
    found = methods.card(name)
    assert found.idea and found.paper and found.headline
    assert all(found.meanings.values()), "an option without a meaning"
    assert all(found.equations.values())
    assert set(found.deviations) == set(found.parts.split(" + "))


@pytest.mark.parametrize("name", PARTS)
def test_state_of_a_part_has_words(name):
    made = PARTS[name]()
    server, client = KEPT.get(name, ("", ""))
    assert bool(server) == bool(made.init_server)
    assert bool(client) == bool(made.init_client or made.personalise)


def test_card_names_what_cannot_be_added_and_why():
    refused = methods.card("map").refuses
    assert "map (restricted_softmax) and personal_head" in refused["personal_head"]
    assert "proximal" not in refused


def test_option_that_refers_to_another_method_is_spelt_out():
    assert methods.card("scamap").meanings["momentum"] == methods.card("fedphp").meanings["momentum"]
    assert "[0, 1" in methods.card("fedadam").meanings["beta_two"]


# ---- pages


@pytest.mark.parametrize("name", NAMES)
def test_page_is_what_the_code_gives(name):
    page = PAGES / f"{name}.md"
    measured = measured_section(name, PAGES.parents[1] / "results")
    assert page.read_text(encoding="utf-8") == methods.page(methods.card(name)) + measured, (
        "run python scripts/write_cards.py"
    )


def test_every_page_has_a_method():
    assert {page.stem for page in PAGES.glob("*.md")} == {*NAMES, "index"}


def test_table_of_all_methods_is_what_the_code_gives():
    costs = json.loads((PAGES / "costs.json").read_text(encoding="utf-8"))
    assert (PAGES / "index.md").read_text(encoding="utf-8") == methods.index_page(costs), (
        "run python scripts/write_cards.py"
    )


def test_table_of_all_methods_says_what_was_not_measured():
    ratio = {"median": 1.5, "low": 1.25, "high": 2.0}
    rows = methods.index_page({"measured": ["On paper."], "ratios": {"fedamp": ratio}}).splitlines()
    (fedamp,), (fedem,) = (
        [row for row in rows if row.startswith(f"| [{name}]")] for name in ("FedAMP", "FedEM")
    )
    assert "| 1.50 (1.25 to 2.00) |" in fedamp and "| single uploads, clients apart |" in fedamp
    assert "| not measured |" in fedem and "On paper." in rows


def test_projects_are_named_for_methods_that_there_are():
    assert {name for names in ELSEWHERE.values() for name in names.split()} <= set(NAMES)


# ---- methods of one's own


@pytest.fixture
def catalogue() -> Iterator[None]:
    """Whatever is registered is forgotten afterwards."""
    before = dict(METHODS), dict(PARTS)
    yield
    for known, kept in zip((METHODS, PARTS), before, strict=True):
        known.clear()
        known.update(kept)


def near(weight: float = 0.5) -> Method:
    """A method of one's own."""
    return chain(average(), proximal(weight), name="near")


def nothing(weight: int = 1) -> Part:
    return Part("nothing")


@pytest.mark.usefixtures("catalogue")
def test_registered_method_is_known_by_name():
    register("near", near, label="Near")
    assert methods.method("near(weight=2)").name == "near"
    assert methods.label("near") == "Near"
    assert methods.card("near").options == {"weight": 0.5}
    assert methods.page(methods.card("near")).startswith("Near\n")


@pytest.mark.usefixtures("catalogue")
def test_registered_part_is_added_to_methods():
    register("nothing", nothing)
    made = methods.method("fedper + nothing(weight=2)")
    assert [part.name for part in made.parts] == ["average", "private_layers", "nothing"]
    with pytest.raises(UserError, match="must be int"):
        methods.method("fedper + nothing(weight=much)")
    with pytest.raises(UserError, match="no option 'size'"):
        methods.method("fedper + nothing(size=1)")


@pytest.mark.usefixtures("catalogue")
def test_registered_part_is_shared_where_its_options_are_equal():
    register("nothing", nothing)
    register("near", near)
    assert [part.name for part in methods.method("nothing + fedavg + nothing(weight=1)").parts] == [
        "nothing",
        "average",
    ]
    with pytest.raises(UserError, match=r"as nothing and as nothing\(weight=2\)"):
        methods.method("nothing + near + nothing(weight=2)")
    assert methods.method("near(weight=2) + proximal(weight=2)").parts[1].written == "proximal(weight=2)"


@pytest.mark.usefixtures("catalogue")
def test_annotations_that_are_not_text_are_checked_too():
    def plain(weight=1.0) -> Method:
        return near(weight)

    plain.__annotations__["weight"] = float
    register("plain", plain)
    with pytest.raises(UserError, match="must be float"):
        methods.method("plain(weight=much)")
    assert methods.method("plain(weight=1)").name == "near"


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("fedavg", near, "already"),
        ("proximal", nothing, "already"),
        ("Near", near, "small letters"),
        ("near you", near, "small letters"),
        ("other", nothing, "calls itself nothing"),
        ("number", lambda: 3, "made int"),
    ],
)
def test_what_cannot_be_registered_is_refused(name, make, message):
    with pytest.raises(UserError, match=message):
        register(name, make)
