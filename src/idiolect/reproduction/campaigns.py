"""Named campaigns: the runs that several tables, searches and comparisons need, made together by one command.

``campaigns.toml`` lists them.  A part is a table or figure under a preset; a part with variants is a search, which runs
chosen cells in every variant and prints them all.  Pairs are comparisons that were named before anything was run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from idiolect.errors import unknown_name
from idiolect.experiments.execution import Execution
from idiolect.experiments.jobs.campaign import RunRequest, run_campaign
from idiolect.experiments.progress.watcher import Silent
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.figures import figure_requests, reproduce_figure
from idiolect.reproduction.named_pairs import NamedPair, pairs_table
from idiolect.reproduction.papers import figure, table, tables
from idiolect.reproduction.recorded import RecordedUse, recorded_request, recorded_table, scenarios_of
from idiolect.reproduction.reproduction_result import Reproduction, write_reproduction
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.results import Results
from idiolect.reproduction.tables import reproduce_table, table_numbers, table_requests

__all__ = [
    "Campaign",
    "Part",
    "Variant",
    "campaign_requests",
    "campaigns",
    "find_campaign",
    "run_named_campaign",
]


@dataclass(frozen=True)
class Variant:
    """A setting that a search tries.

    Args:
        settings: of the experiment, on top of the preset's.
        options: of methods, by name.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """
        >>> Variant({"momentum": 0.9}, {"persfl": {"epochs": 60}}).label, Variant().label
        ('momentum=0.9, persfl epochs=60', 'as the preset has it')
        """
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        options = [
            f"{name} {key}={value}" for name, own in self.options.items() for key, value in own.items()
        ]
        return ", ".join([*settings, *options]) or "as the preset has it"


@dataclass(frozen=True)
class Part:
    """A table or figure, or a part of one.

    Args:
        id: of the table or figure.
        columns, methods, rows: empty for all.
        seeds: how many, from 0 on.
        variants: of a search; without them the part is a table or figure.
    """

    id: str
    columns: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    preset: str = "paper"
    seeds: int = 1
    variants: tuple[Variant, ...] = ()

    def requests(self, precision: str | None) -> list[ReproductionRequest]:
        """Returns what the part asks for, in every variant."""
        base = ReproductionRequest(
            preset=self.preset,
            seeds=tuple(range(self.seeds)),
            columns=self.columns,
            methods=self.methods,
            rows=self.rows,
            precision=precision,
        )
        return [
            replace(
                base, settings=one.settings, grid={name: [dict(own)] for name, own in one.options.items()}
            )
            for one in self.variants or (Variant(),)
        ]


@dataclass(frozen=True)
class Campaign:
    """Runs that are made together.

    Args:
        precision: number format of all runs; None leaves the scenarios'.
        pairs: comparisons that the campaign tests, with Holm's correction over all of them, run or not.
    """

    name: str
    about: str
    parts: tuple[Part, ...]
    precision: str | None = None
    pairs: tuple[NamedPair, ...] = ()


def find_campaign(name: str) -> Campaign:
    """Returns a campaign by its name."""
    if name not in campaigns():
        raise unknown_name("campaign", name, campaigns())
    return campaigns()[name]


@cache
def campaigns() -> dict[str, Campaign]:
    """Returns all campaigns by name, in the order in which they are meant to be made."""
    text = (files("idiolect.reproduction") / "campaigns.toml").read_text("utf-8")
    return {block["name"]: _campaign(block) for block in tomllib.loads(text)["campaign"]}


def _campaign(block: Mapping[str, Any]) -> Campaign:
    parts = tuple(
        _made(Part, one | {"variants": tuple(_made(Variant, each) for each in one.get("variants", ()))})
        for one in block["part"]
    )
    pairs = tuple(NamedPair.read(one) for one in block.get("pair", ()))
    own = {key: value for key, value in block.items() if key not in ("part", "pair")}
    made: Campaign = _made(Campaign, own | {"parts": parts, "pairs": pairs})
    return made


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Returns a value of a dataclass; lists become tuples, and an unknown key is refused."""
    strange = set(values) - {one.name for one in fields(kind)}
    if strange:
        raise ValueError(f"a {kind.__name__.lower()} of a campaign has no {', '.join(sorted(strange))}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def campaign_requests(campaign: Campaign) -> Iterator[RunRequest]:
    """Yields a request for every run of the campaign; a run that several parts need comes several times."""
    for place, part in enumerate(campaign.parts):
        for variant, request in enumerate(part.requests(campaign.precision)):
            of_table = _is_table(part)
            asked = (
                table_requests(table(part.id), request)
                if of_table
                else figure_requests(figure(part.id), request)
            )
            for one in asked:
                yield replace(one, key=(place, variant, one.key), take=_nothing)


def _nothing(run: object) -> None:
    """Takes nothing from a run: tables read it when all runs are made."""


def run_named_campaign(
    name: str, execution: Execution, from_results: str | Path | None = None
) -> list[Reproduction]:
    """Makes the runs of a campaign that are not finished, ``execution.jobs`` at a time, and writes what they show.

    Args:
        from_results: a folder of results; everything is read from it and nothing is trained.
    """
    campaign = find_campaign(name)
    results = None
    if from_results is None:
        run_campaign(list(campaign_requests(campaign)), execution)
    else:
        results = Results.open(from_results, execution.watcher.say)
    execution = replace(execution, watcher=Silent())  # what is read now was told when it was made
    done = [_shown(part, campaign, execution, results) for part in campaign.parts]
    if campaign.pairs:
        most = tuple(range(max(part.seeds for part in campaign.parts)))
        request = ReproductionRequest(seeds=most, precision=campaign.precision)
        done.append(pairs_table(f"{name}-pairs", campaign.pairs, request, results, execution))
    return done


def _shown(part: Part, campaign: Campaign, execution: Execution, results: Results | None) -> Reproduction:
    """Returns the table, figure or search of a part, whose runs are made."""
    first = part.requests(campaign.precision)[0]
    if part.variants:
        return _search(part, campaign, execution, results)
    if results is not None:
        use = RecordedUse(results, part.preset, campaign.precision)
        if _is_table(part):
            return recorded_table(table(part.id), use, first, execution)
        first = recorded_request(use, scenarios_of(figure(part.id)), first)
    if _is_table(part):
        return reproduce_table(table(part.id), first, execution)
    return reproduce_figure(figure(part.id), first, execution)


def _search(part: Part, campaign: Campaign, execution: Execution, results: Results | None) -> Reproduction:
    """Returns the cells of a part in every variant: a row for each variant that was tried."""
    found: list[ComparedNumber] = []
    requests = [replace(one, results=results) for one in part.requests(campaign.precision)]
    for variant, request in zip(part.variants, requests, strict=True):
        for one in table_numbers(table(part.id), request, execution):
            found.append(replace(one, row=variant.label, column=f"{one.row}, {one.column}"))
    caption = f"every setting that was tried, on top of the preset {part.preset}: cells of {part.id}"
    return write_reproduction(
        f"{campaign.name}-{part.id}-search", caption, found, (), requests[0], execution.out
    )[0]


def _is_table(part: Part) -> bool:
    return part.id in {found.id for found in tables()}
