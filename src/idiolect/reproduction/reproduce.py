"""``reproduce``: runs the scenarios of a paper's table or figure and puts the numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice, unknown_name
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.sweep.parameter_grids import grid
from idiolect.reports import IMAGE_FORMATS
from idiolect.reproduction.figures import reproduce_figure
from idiolect.reproduction.papers import figure, figures, papers, table, tables
from idiolect.reproduction.recorded import RecordedUse, recorded_request, recorded_table, scenarios_of
from idiolect.reproduction.reproduction_result import Reproduction
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.results import Results
from idiolect.reproduction.studies.study_figures import STUDY_KINDS
from idiolect.reproduction.tables import reproduce_table
from idiolect.statistics.degradation_between_rounds import DELTAS

__all__ = ["Reproduction", "ids", "reproduce"]

REQUEST_KEYWORDS = ("preset", "precision", "delta", "formats")  # of ``reproduce`` and ``ReproductionRequest``


def ids() -> list[str]:
    """Returns the ids of every table and figure."""
    return [*(found.id for found in tables()), *(found.id for found in figures())]


def reproduce(
    id: str,
    *,
    columns: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: int | None = None,
    quick: bool = False,
    best_of_grid: bool = False,
    from_results: str | Path | None = None,
    execution: Execution | None = None,
    **settings: Any,
) -> Reproduction:
    """Makes the unfinished runs of a table or figure, and writes it with the paper's numbers beside ours.

    Args:
        id: a table or figure, such as ``map-table2`` or ``fedphp-fig4``.
        columns: columns of a table, or scenarios of a figure; all by default.
        methods: names of methods; all by default.
        seeds: number of seeds, from 0 on; by default as many runs as the paper averages (five of PersFL, one of the
            others), and one with ``quick``.
        quick: uses the embedded data, few clients and few rounds; shows that it works and is never compared.
        best_of_grid: runs every setting that the paper's authors tried and takes the best of each scenario, as the
            paper does; for MAP's tables and the figure that is made of them.
        from_results: a folder of results; everything is read from it and nothing is trained.  Unless told otherwise,
            each column of a table, or a figure, is read under the first of the presets ``reproduction``, ``official``,
            ``clipped`` and ``paper`` of which there are runs, and every number is that of all recorded seeds.
        execution: how the runs are made; its ``out`` holds the runs and a folder with the table.  Interrupted runs are
            always resumed.
        settings: fields of ``Execution``, see ``run``, and any of these:
            ``preset``: preset of the scenarios; ``paper`` by default.
            ``precision``: number format of all runs, the only setting that may differ from the paper's.
            ``delta``: where a figure of local degradation (FedPHP, figure 6) compares the downloaded model with the
            client's last personalised one: at the client's next ``selection``, or at the next ``round`` as the paper's
            equation 4 is written, which is read in rounds that evaluate all clients.
            ``formats``: file formats of a figure's picture: png, svg, pdf.
    """
    asked = {key: settings.pop(key) for key in REQUEST_KEYWORDS if key in settings}
    execution, others = split_keywords(execution, settings)
    if others:
        name = next(iter(others))
        raise UserError(f"{name} cannot be set in a reproduction, which runs the settings of the paper")
    if id not in ids():
        raise unknown_name(
            "table or figure", id, ids(), "`idiolect reproduce --list` lists the tables and figures"
        )
    recorded = None
    if from_results is not None:
        if quick:
            raise UserError("quick runs are no results; leave quick or from_results out")
        given = None if seeds is None else tuple(range(seeds))
        results = Results.open(from_results, execution.watcher.say)
        recorded = RecordedUse(results, asked.get("preset"), asked.get("precision"), given)
    asked = {key: value for key, value in asked.items() if key != "preset" or value is not None}
    if seeds is None:
        seeds = 1 if quick else papers()[id.partition("-")[0]].seeds
    refuse_outside("seeds", seeds, 1)
    request = ReproductionRequest(
        seeds=tuple(range(seeds)),
        quick=quick,
        columns=tuple(columns),
        methods=tuple(name.strip().lower().replace("-", "_") for name in methods),
        grid=_settings_tried(id) if best_of_grid else {},
        **asked,
    )
    _refuse_needless(id, request, execution)
    if quick:
        execution = replace(execution, checkpoint_every=1)
    if id in {found.id for found in tables()}:
        if recorded is not None:
            return recorded_table(table(id), recorded, request, execution)
        return reproduce_table(table(id), request, execution)
    if recorded is not None:
        request = recorded_request(recorded, scenarios_of(figure(id)), request)
    return reproduce_figure(figure(id), request, execution)


def _refuse_needless(id: str, request: ReproductionRequest, execution: Execution) -> None:
    """Refuses unknown formats, and a delta, precision or log where it would have no effect."""
    for name in request.formats:
        refuse_unknown_choice("a format", name, IMAGE_FORMATS)
    refuse_unknown_choice("delta", request.delta, DELTAS)
    own = [found.id for found in figures() if found.kind == "degradation"]
    if request.delta != DELTAS[0] and id not in own:
        raise UserError(f"{id} shows no local degradation, only {', '.join(own)} does; leave delta out")
    of_studies = {found.id for found in figures() if found.kind in STUDY_KINDS}
    if request.precision is not None and id in of_studies:
        raise UserError(f"{id} shows single networks, which train in float32; leave precision out")
    if execution.log and id in of_studies:
        raise UserError(f"{id} shows single networks, whose training is not logged; leave log out")


def _settings_tried(id: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the settings of every method that the paper's authors tried."""
    own = {found.id for found in tables() if found.paper == "map"}
    own |= {found.id for found in figures() if found.tables and own.issuperset(found.tables)}
    if id not in own:
        raise UserError(
            f"{id} reports no best of several settings, only {', '.join(sorted(own))} do; leave best_of_grid out"
        )
    return grid("map").methods
