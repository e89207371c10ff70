"""`idiolect scenarios`: the papers' experiments, listed or explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from idiolect.cli.app import app
from idiolect.cli.options import DataDir, Json, Preset
from idiolect.cli.terminal import console_of_output, print_table
from idiolect.data.availability import availability
from idiolect.reproduction.papers import papers
from idiolect.reproduction.scenarios import ORIGINS, Scenario, find_scenario, scenario_uses, scenarios

__all__ = ["scenarios_command"]


@app.command("scenarios")
def scenarios_command(
    name: Annotated[str | None, typer.Argument(help="A scenario to explain.")] = None,
    preset: Preset = "paper",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List the papers' experiments, or explain one: every setting and where it comes from."""
    if as_json:
        found: Any = _listing(data_dir)
        if name:
            found = _as_json(find_scenario(name), preset, data_dir)
        print(json.dumps(found, indent=2, default=str))
    elif name:
        _print_page(console_of_output(), find_scenario(name), preset, data_dir)
    else:
        _print_listing(console_of_output(), data_dir)


def _listing(data_dir: Path | None) -> list[dict[str, Any]]:
    """Returns what the list says of every scenario."""
    found: dict[str, bool] = {}
    for scenario in scenarios():
        if scenario.dataset not in found:
            found[scenario.dataset] = availability(scenario.dataset, data_dir).present
    return [
        {
            "name": s.name,
            "paper": s.paper,
            "dataset": s.dataset,
            "present": found[s.dataset],
            "runs": not s.cannot,
            "presets": list(s.presets),
            "line": s.line,
        }
        for s in scenarios()
    ]


def _print_listing(console: Console, data_dir: Path | None) -> None:
    rows = [["Name", "Paper", "Dataset", "Data", "What"]]
    for entry in _listing(data_dir):
        status = "present" if entry["present"] else "missing"
        rows.append([entry["name"], entry["paper"], entry["dataset"], status, entry["line"]])
    print_table(console, rows, words=5)


def _as_json(scenario: Scenario, preset: str, data_dir: Path | None) -> dict[str, Any]:
    """Returns everything that is known of a scenario."""
    return {
        "name": scenario.name,
        "line": scenario.line,
        "paper": papers()[scenario.paper].citation,
        "preset": preset,
        "presets": list(scenario.presets),
        "warning": scenario.warning_of(preset),
        "cannot": scenario.cannot,
        "differs": list(scenario.differs),
        "expected_clients": scenario.expected_clients,
        "data": availability(scenario.dataset, data_dir)._asdict(),
        "settings": {key: given._asdict() for key, given in scenario.settings(preset).items()},
        "methods": {name: scenario.method_text(name, preset) for name in scenario.options},
        "method_settings": {name: dict(each) for name, each in scenario.method_settings.items()},
        **{f"used_in_{kind}": list(used) for kind, used in scenario_uses(scenario.name)._asdict().items()},
    }


def _print_page(console: Console, scenario: Scenario, preset: str, data_dir: Path | None) -> None:
    """Prints every setting and its origin, the tables that use the scenario, how to get the data, and the warning."""
    known = _as_json(scenario, preset, data_dir)
    data, where = known["data"], f"{known['paper']}; preset {preset} of {', '.join(known['presets'])}"

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(f"{scenario.name}: {scenario.line}\n{where}")
    say(f"Data: {data['dataset']}, " + ("present" if data["present"] else f"missing; {data['advice']}"))
    for word, sentences in (("Cannot be run", [scenario.cannot]), ("Warning", [known["warning"]])):
        for sentence in filter(None, sentences):
            say(f"{word}: {sentence}")
    for sentence in scenario.differs:
        say(f"Differs: {sentence}")
    rows = [["Setting", "Value", "From", "Why"]]
    for key, given in scenario.settings(preset).items():
        clients = (
            f" (the paper has {scenario.expected_clients})" if (key, given.value) == ("clients", 0) else ""
        )
        rows.append([key, f"{given.value}{clients}", ORIGINS[given.origin], given.reason])
    print_table(console, rows, words=4)
    if known["methods"]:
        print_table(console, [["Method", "Runs as"], *map(list, known["methods"].items())], words=2)
    for name, each in known["method_settings"].items():
        say(f"{name} alone: " + ", ".join(f"{key}={value}" for key, value in each.items()))
    say("Used in: " + ", ".join(known["used_in_tables"] + known["used_in_figures"]))
    if known["used_in_methods"] and not scenario.cannot:
        shown = ",".join(known["used_in_methods"])
        chosen = "" if preset == "paper" else f" --preset {preset}"
        say(f"Run it: idiolect compare --scenario {scenario.name}{chosen} --methods '{shown}'")
