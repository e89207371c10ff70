"""What must hold at scale: neither population, nor the size of private state, nor the number of rounds shows.

Each run has a process of its own.  Seconds are those of the processor, and of many rounds the fastest twentieth: what
else the machine does shows least there.  The numbers are printed (`pytest -s`).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.rounds.private_state_placement import place_private_state
from idiolect.experiments.setting import prepare

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc"),
]

MB = 1e6


def measured(out: Path, **settings: Any) -> dict[str, Any]:
    """The output of `measure_run.py`; the last round, in which all clients are evaluated, stands apart."""
    words = json.dumps({"out": str(out), "engine": "loop", "device": "cpu", **settings})
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("measure_run.py")), words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fast(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[0]


@pytest.mark.parametrize("store", ["auto", "disk"])
def test_population_does_not_show(store: str, tmp_path: Path) -> None:
    """FedPer, 100 clients a round of 1,000 and of 100,000, on one dataset whose other rows nobody holds."""
    seconds, resident = {}, {}
    for population in (1_000, 100_000):
        found = measured(
            tmp_path / str(population),
            method="fedper",
            dataset="synthetic(n_clients=100000, samples_per_client=10, n_features=16, n_classes=10)",
            partition="by_id",
            clients=population,
            model="mlpnet(hidden=32)",
            rounds=41,
            participation_rate=100 / population,
            local_epochs=4,
            batch_size=8,
            evaluate_every=1000,
            store=store,
            store_cache=10,
        )
        seconds[population] = fast(found["busy"][20:-1])
        resident[population] = found["resident"][-2] / MB
        print(
            f"{store}, {population:,} clients: {seconds[population]:.3f} s of processor a round (median "
            f"{statistics.median(found['seconds'][20:-1]):.3f} s of wall), {resident[population]:.0f} MB resident, "
            f"{found['resident'][-1] / MB:.0f} MB after all were evaluated in {found['seconds'][-1]:.0f} s; "
            f"{found['said'][0]}"
        )
    assert seconds[100_000] < 1.1 * seconds[1_000]
    assert resident[100_000] < 1.1 * resident[1_000]


LARGE = Experiment(
    method="map",
    dataset="synthetic(n_clients=3550, samples_per_client=10, n_features=60, n_classes=62)",
    partition="by_id",
    clients=3550,
    model="mlpnet(hidden=2500)",
    participation_rate=10 / 3550,
    local_epochs=2,
    batch_size=8,
)


def test_large_private_models_are_bounded_by_cohort_and_cache(tmp_path: Path) -> None:
    """3,550 clients with an inherited model of 6.6 million parameters each, 10 of them a round."""
    row, cache = 26.2, 300
    found = measured(
        tmp_path / "out",
        method=LARGE.method,
        dataset=LARGE.dataset,
        partition="by_id",
        clients=3550,
        model=LARGE.model,
        rounds=25,
        participation_rate=LARGE.participation_rate,
        local_epochs=2,
        batch_size=8,
        evaluate_every=1000,
        checkpoint_every=5,
        store="disk",
        store_cache=cache,
    )
    grown = [(bytes_ - found["ready"]) / MB for bytes_ in found["resident"]]
    peak = (found["peak"] - found["ready"]) / MB
    print(
        f"{found['said']}: {statistics.median(found['seconds'][:-1]):.2f} s a round, {found['ready'] / MB:.0f} MB "
        f"resident before, {grown[4]:.0f} MB more after round 5, {grown[-2]:.0f} after round 24, {grown[-1]:.0f} "
        f"after all were evaluated in {found['seconds'][-1]:.0f} s, {peak:.0f} at most"
    )
    assert "26 MB x 3,550 clients, at most 6.6 GB of the 250 that can take part, on disk" in found["said"][0]
    # a round has rows, new rows, messages, their stacks, what looks for broken numbers, the next rows
    bound = cache + 9 * 10 * row
    assert peak < bound
    assert max(grown[15:24]) < 1.15 * max(grown[5:15])
    assert 250 * row > 2 * bound, "all that was written must not fit"


@pytest.mark.parametrize("method", ["fedamp", "fedfomo"])
def test_uploads_that_the_server_keeps_are_bounded_by_the_cohort(method: str, tmp_path: Path) -> None:
    """10,000 clients with models of 1.06 MB, 10 of them a round; FedAMP's server reads all that it keeps in each."""
    cohort, row, rounds = 10, 1.06, 100
    found = measured(
        tmp_path / "out",
        method=method,
        dataset="synthetic(n_clients=10000, samples_per_client=10, n_features=16, n_classes=10)",
        partition="by_id",
        clients=10_000,
        model="mlpnet(hidden=500)",
        rounds=rounds,
        participation_rate=cohort / 10_000,
        local_epochs=2,
        batch_size=8,
        evaluate_every=1000,
        checkpoint_every=10,
        store="disk",
        store_cache=cohort * row,
    )
    grown = [(bytes_ - found["ready"]) / MB for bytes_ in found["resident"]]
    peak = (found["peak"] - found["ready"]) / MB
    kept = rounds * cohort * row
    (folder,) = (tmp_path / "out").iterdir()
    told = json.loads((folder / "manifest.json").read_text("utf-8"))["kept_by_server"]
    print(
        f"{method}: {found['said']}; {told}; {statistics.median(found['busy'][:-1]):.2f} s of processor a round, "
        f"{found['ready'] / MB:.0f} MB resident before, {grown[4]:.0f} MB more after round 5, "
        f"{max(grown[:-1]):.0f} at most until round {rounds - 1}, {peak:.0f} at most; {kept:.0f} MB were kept"
    )
    assert max(grown[:-1]) < 0.3 * kept, "rounds"
    assert peak < 0.6 * kept, "the last round, after which all clients are scored"


def test_large_private_models_are_refused_where_they_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = prepare(
        LARGE.__class__(**{**LARGE.__dict__, "rounds": 1000}), EngineChoice("loop", "cpu", "as asked")
    )
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: 2 * 10**11)
    placement = place_private_state(setting, tmp_path, Execution())
    print(placement.sentence(), f"; {placement.demand.on_disk / 1e9:.0f} GB on disk with old rows")
    assert placement.kind == "disk"
    assert placement.demand.in_memory == pytest.approx(93e9, rel=0.02)
    monkeypatch.setattr("idiolect.federation.store.placement.free_disk", lambda folder: 9 * 10**10)
    with pytest.raises(UserError, match=rf"but {tmp_path} has 90 GB free"):
        place_private_state(setting, tmp_path, Execution())


@pytest.mark.parametrize("store", ["host", "disk"])
def test_number_of_rounds_does_not_show(store: str, tmp_path: Path) -> None:
    found = measured(
        tmp_path / store,
        method="map",
        dataset="synthetic(n_clients=100, samples_per_client=20, n_features=16, n_classes=10)",
        partition="by_id",
        clients=100,
        model="mlpnet(hidden=32)",
        rounds=500,
        participation_rate=0.1,
        local_epochs=2,
        batch_size=8,
        evaluate_every=10,
        store=store,
        store_cache=0.1,
    )
    spans = [range(100, 200), range(200, 300), range(300, 400), range(400, 499)]
    seconds = [fast([found["busy"][r] for r in span]) for span in spans]
    saving = [
        min(found["busy"][r] for r in span if r % 10 == 0) for span in spans
    ]  # begins with a checkpoint
    resident = [max(found["resident"][r] for r in span) / MB for span in spans]
    shown = [
        f"{s:.4f} s, {c:.4f} s and {r:.1f} MB" for s, c, r in zip(seconds, saving, resident, strict=True)
    ]
    print(
        f"{store}: processor a round, with a checkpoint, and most resident, by hundreds of rounds from 100: {shown}"
    )
    assert seconds[-1] < 1.1 * seconds[0]
    assert saving[-1] < 1.1 * saving[0]
    assert resident[-1] < 1.02 * resident[0]
