"""The list of all tables and figures: what each shows, and which data, networks and runs it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from idiolect.data.availability import availability
from idiolect.experiments.spec import Experiment
from idiolect.reproduction.campaigns import campaign_requests, campaigns
from idiolect.reproduction.figures import figure_requests
from idiolect.reproduction.papers import PaperFigure, PaperTable, figures, papers, tables
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.scenarios import find_scenario
from idiolect.reproduction.studies import studies_of
from idiolect.reproduction.studies.study_figures import STUDY_KINDS
from idiolect.reproduction.tables import table_requests

__all__ = ["ListedCampaign", "ListedReproduction", "list_campaigns", "list_reproductions"]


@dataclass(frozen=True)
class ListedReproduction:
    """What is known of a table or figure before it is made.

    Args:
        what: the caption.
        runs: different runs, of all seeds that the paper averages; 0 where nothing is run.
        client_rounds: trainings of one client in one round, summed over the runs: a rough measure of the cost.  A study
            trains one network, and its epochs count.
        missing: those of the datasets that are not on this machine.
    """

    id: str
    paper: str
    what: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    runs: int
    client_rounds: int
    missing: tuple[str, ...]


def list_reproductions(data_dir: str | Path | None = None) -> list[ListedReproduction]:
    """Returns what every table and figure needs, in the order of the papers."""
    present = cache(lambda dataset: availability(dataset, data_dir).present)
    found = []
    every: list[PaperTable | PaperFigure] = [*tables(), *figures()]
    for one in sorted(every, key=lambda one: list(papers()).index(one.paper)):
        work = set(_work(one))
        datasets = tuple(dict.fromkeys(sorted(piece.dataset for piece in work)))
        listed = ListedReproduction(
            id=one.id,
            paper=one.paper,
            what=one.caption,
            datasets=datasets,
            models=tuple(dict.fromkeys(sorted(piece.model for piece in work if piece.model))),
            runs=sum(piece.key is not None for piece in work),
            client_rounds=sum(piece.client_rounds for piece in work),
            missing=tuple(name for name in datasets if not present(name)),
        )
        found.append(listed)
    return found


class ListedCampaign(NamedTuple):
    """A named campaign: its different runs, and their trainings of one client in one round."""

    name: str
    about: str
    runs: int
    client_rounds: int


def list_campaigns() -> list[ListedCampaign]:
    """Returns what every campaign needs, in the order in which they are meant to be made."""
    found = []
    for one in campaigns().values():
        pieces = {
            _piece(each.experiment, _clients_of(each.notes, each.experiment))
            for each in campaign_requests(one)
        }
        rounds = sum(piece.client_rounds for piece in pieces)
        found.append(ListedCampaign(one.name, one.about, len(pieces), rounds))
    return found


@dataclass(frozen=True)
class _Piece:
    """One run or study, equal for those that are made once; without a key it is data that are looked at alone."""

    key: object
    dataset: str
    model: str
    client_rounds: int


def _work(one: PaperTable | PaperFigure) -> Iterator[_Piece]:
    request = ReproductionRequest(seeds=tuple(range(papers()[one.paper].seeds)))
    if isinstance(one, PaperFigure) and one.kind in STUDY_KINDS:
        for seed in request.seeds:
            for found in studies_of(one.kind, one.scenarios, seed, quick=False):
                yield _Piece(found, found.study.dataset, found.study.model, found.study.epochs)
        return
    for cell in one.cells if isinstance(one, PaperTable) else ():
        if cell.reading.source == "federation":  # needs the data and no run
            experiment, _ = request.experiment(cell.scenarios[0], cell.method or "fedavg", 0)
            yield _Piece(None, experiment.dataset.partition("(")[0], "", 0)
    wanted = table_requests(one, request) if isinstance(one, PaperTable) else figure_requests(one, request)
    for each in wanted:
        yield _piece(each.experiment, _clients_of(each.notes, each.experiment))


def _piece(experiment: Experiment, clients: int) -> _Piece:
    cohort = max(1, round(experiment.participation_rate * clients))
    return _Piece(
        experiment, experiment.dataset.partition("(")[0], experiment.model, experiment.rounds * cohort
    )


def _clients_of(notes: tuple[str, ...], experiment: Experiment) -> int:
    """Returns the number of clients; where the data decide it, the number that the paper states."""
    if experiment.clients:
        return experiment.clients
    scenario = notes[0].removeprefix("scenario ").partition(",")[0]
    return find_scenario(scenario).expected_clients or 1
