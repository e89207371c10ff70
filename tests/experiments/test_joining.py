"""New clients join a finished run: by the rule of its method, with its preprocessing, and without touching it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import idiolect
from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.experiments import FinishedRun
from idiolect.experiments.finished.recorded_setting import HERE, experiment_of
from idiolect.experiments.setting import prepare, read_dataset

WEIGHTS = ("weights",)
SYNTHETIC = "synthetic(n_clients=5, samples_per_client=30, n_features=6, n_classes=3)"


def trained(method: str, out: Path, **settings: Any) -> FinishedRun:
    base = {"model": "mlpnet(hidden=8)", "rounds": 1, "participation_rate": 1.0, "local_epochs": 1}
    return idiolect.run(method, **{**base, "engine": "loop", "out": out, "quiet": True, **settings})


def clients(count: int, first: str = "a", scale: float = 1.0) -> dict[str, tuple[np.ndarray, list[str]]]:
    """Clients with three classes of words, on columns of any scale."""
    random = np.random.default_rng(ord(first))
    found = {}
    for place in range(count):
        x = (scale * random.normal(size=(30, 6))).astype(np.float32)
        found[chr(ord(first) + place)] = x, [("low", "mid", "top")[k] for k in np.abs(x[:, :3]).argmax(1)]
    return found


def digests(folder: Path | None) -> dict[str, str]:
    assert folder is not None
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("method", ["fedrod", "fedavg_lu"])
def test_joining_gives_the_numbers_of_a_newcomer_in_the_simulation(tmp_path: Path, method: str) -> None:
    run = trained(
        method, tmp_path, dataset=SYNTHETIC, partition="by_id", clients=5, newcomers=1, rounds=2, valid=0.2
    )
    experiment = experiment_of(run.manifest["spec"], run.name)
    federation, pool = prepare(experiment, HERE).federation, read_dataset(experiment.dataset)
    split = np.zeros(30, np.int8)
    own = federation.clients[4]
    rows = np.concatenate(own)
    for place, part in enumerate(own):
        split[np.isin(rows, part)] = place
    data = Dataset(
        "late",
        pool.train_x[rows],
        pool.train_y[rows],
        pool.test_x[:0],
        pool.test_y[:0],
        3,
        None,
        None,
        {},
        splits=split,
    )
    run.manifest["class_counts"].pop()  # so that the client gets the number that it had
    run.manifest["newcomers"].clear()
    joined = idiolect.join(run, data, formats=WEIGHTS)
    keys = ["split", "predictor", "moment", "metric"]
    there = run.rows[run.rows["population"] == "new"].set_index(keys)["value"].sort_index()
    here = joined.rows.set_index(keys)["value"].sort_index()
    assert len(there) > 10 and here.equals(there)


@pytest.mark.parametrize("method", ["fedrod", "superfed_mm"])
def test_models_of_joined_clients_score_as_reported(tmp_path: Path, method: str) -> None:
    run = trained(method, tmp_path, data=clients(3), learning_rate=0.1)
    before, new = digests(run.folder), clients(2, first="x")
    joined = idiolect.join(run, new, steps=5, formats=WEIGHTS)
    assert digests(run.folder) == before
    assert joined.clients == ("x", "y") and joined.folder.parent == tmp_path
    federation, x = joined.setting.federation, np.concatenate([rows for rows, _ in new.values()])
    y = np.concatenate([labels for _, labels in new.values()])
    for place, name in enumerate(joined.clients):
        test = federation.clients[3 + place].test
        share = (joined.predict(x[test], client=name) == y[test]).mean()
        assert share == joined.table()["after"][place]
        loaded = idiolect.load_model(joined.folder / f"{name}.safetensors")
        assert torch.equal(loaded(torch.from_numpy(x)), joined.model(name)(torch.from_numpy(x)))


def test_preprocessing_is_that_of_the_run(tmp_path: Path) -> None:
    run = trained("fedper", tmp_path, data=clients(3, scale=100.0))
    joined = idiolect.join(run, clients(1, first="x", scale=5.0), formats=WEIGHTS)
    fitted = joined.setting.federation.preprocessing
    assert fitted == run.inputs.preprocessing and min(fitted.std) > 50
    assert joined.setting.federation.x.std() < 0.2


def test_more_steps_change_the_result_and_nothing_else_does(tmp_path: Path) -> None:
    run, new = trained("fedavg_lu", tmp_path, data=clients(3)), clients(1, first="x")
    x = torch.from_numpy(new["x"][0])
    found = [
        idiolect.join(run, new, steps=steps, out=tmp_path / f"joined-{place}", formats=WEIGHTS).model("x")(x)
        for place, steps in enumerate([1, 1, 40])
    ]
    assert torch.equal(found[0], found[1]) and (found[1] - found[2]).abs().max() > 0.1


def test_a_table_joins_by_its_columns(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "site": np.repeat(["a", "b", "c"], 20),
            "age": random.integers(20, 80, 60).astype(float),
            "sex": random.choice(["f", "m"], 60),
            "ill": random.choice(["no", "yes"], 60),
        }
    )
    table.loc[3, "age"] = np.nan
    how = {"client_column": "site", "label_column": "ill"}
    run = trained("fedper", tmp_path, data=table[table["site"] != "c"], fill="mean", **how)
    late = table[(table["site"] == "c") & (table["sex"] == "f")]
    joined = idiolect.join(run, late[["ill", "sex", "site", "age"]], formats=WEIGHTS, **how)
    assert joined.clients == ("c",)
    assert set(joined.predict(late.drop(columns="ill"), client="c")) <= {"no", "yes"}
    with pytest.raises(UserError, match="sex"):
        idiolect.join(run, late.assign(sex="x"), **how)
    with pytest.raises(UserError, match="'age'"):
        run.predict(late[["sex"]], client=0)
    with pytest.raises(UserError, match="or a frame with the columns of the data"):
        run.predict(np.zeros((2, 1)), client=0)


def hospitals(names: list[str], seed: int) -> pd.DataFrame:
    x = np.random.default_rng(seed).normal(size=(20 * len(names), 2))
    return pd.DataFrame({"hospital": np.repeat(names, 20), "a": x[:, 0], "b": x[:, 1], "ill": x[:, 0] > 0})


def test_a_table_names_its_clients_in_the_column_of_the_run(tmp_path: Path) -> None:
    how = {"client_column": "hospital", "label_column": "ill"}
    run = trained("fedper", tmp_path / "runs", data=hospitals(["01", "02"], 0), **how)
    late = hospitals(["007", "7"], 1)
    late.to_csv(tmp_path / "late.csv", index=False)
    for place, data in enumerate((late, tmp_path / "late.csv")):
        out = tmp_path / f"joined-{place}"
        assert idiolect.join(run, data, out=out, formats=WEIGHTS).clients == ("007", "7")
    other = late.rename(columns={"hospital": "clinic"})
    with pytest.raises(UserError, match=r"no column 'hospital', which names the clients .* client_column"):
        idiolect.join(run, other)
    assert idiolect.join(run, other, client_column="clinic", formats=WEIGHTS).clients == ("007", "7")


def test_arrays_in_a_file_name_their_clients_as_the_run_does(tmp_path: Path) -> None:
    for name, firsts in (("old", "ab"), ("late", "xy")):
        rows = {first: clients(1, first)[first] for first in firsts}
        x, y = (np.concatenate([pair[part] for pair in rows.values()]) for part in (0, 1))
        np.savez(tmp_path / f"{name}.npz", x=x, y=y, hospital=np.repeat(list(firsts), 30))
    run = trained("fedper", tmp_path / "runs", data=tmp_path / "old.npz", client_column="hospital")
    assert idiolect.join(run, tmp_path / "late.npz", formats=WEIGHTS).clients == ("x", "y")


def test_a_client_of_the_run_cannot_join_it_again(tmp_path: Path) -> None:
    run = trained("fedper", tmp_path, data=clients(3))
    sentence = (
        r"client 'b' took part in the run; open it with run.model\('b'\), or give the newcomer another name"
    )
    with pytest.raises(UserError, match=sentence):
        idiolect.join(run, {"x": clients(1)["a"], "b": clients(1)["a"]})


def test_clients_without_names_join_runs_whose_clients_have_none(tmp_path: Path) -> None:
    run = trained("fedper", tmp_path, data=list(clients(3).values()))
    new = list(clients(11, first="h").values())
    joined = idiolect.join(run, new, formats=WEIGHTS)
    assert joined.clients == tuple(f"new-{place:02}" for place in range(11))
    last = joined.setting.federation.clients[3 + 10]
    assert min(np.concatenate(last)) == 300


def test_data_that_do_not_fit_the_run_are_one_sentence(tmp_path: Path) -> None:
    run = trained("fedper", tmp_path, data=clients(3))
    (x, y), folders = clients(1)["a"], set(tmp_path.iterdir())
    assert run.folder is not None
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ((x[:, :5], y), {}, r"rows of the shape \[6\] and those of the new data have \[5\]"),
        ((x, ["odd", *y[1:]]), {}, "'odd'"),
        ((x[:2], y[:2]), {}, "too few"),
        ((x, y), {"steps": 0}, "steps"),
        ((x, y), {"steps": 1.5}, "steps must be a whole number"),
        ((x, y), {"out": run.folder / "manifest.json"}, "inside the run"),
        ((x, y), {"out": Path(__file__)}, "is no folder of joined clients"),
        ((x, y), {"steps": 3, "epochs": 1}, "give one of them"),
        ((x, y), {"out": run.folder / "new"}, "inside the run"),
        (pd.DataFrame(x).assign(label=y), {}, "trained on arrays"),
    ]
    for data, how, sentence in wrong:
        with pytest.raises(UserError, match=sentence):
            idiolect.join(run, data, **how)
    assert set(tmp_path.iterdir()) == folders


def test_the_same_joining_is_kept_and_another_refused(tmp_path: Path) -> None:
    run = trained("fedper", tmp_path, data=clients(3))
    folder = idiolect.join(run, clients(1, first="x"), formats=WEIGHTS).folder
    record = json.loads((folder / "joining.json").read_text())
    assert record["run"] == run.name and record["clients"] == ["x"]
    assert all(
        hashlib.sha256((folder / name).read_bytes()).hexdigest() == d for name, d in record["sha256"].items()
    )
    before = digests(folder)
    assert (
        idiolect.join(run, clients(1, first="x"), formats=WEIGHTS).folder == folder
        and digests(folder) == before
    )
    for data, how in ((clients(1, first="y"), {}), (clients(1, first="x"), {"steps": 2})):
        with pytest.raises(UserError, match="other clients, or the same that trained otherwise"):
            idiolect.join(run, data, out=folder, **how)
    assert digests(folder) == before
    (folder / "joining.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        idiolect.join(run, clients(1, first="x"))


def test_the_same_joining_gets_the_formats_that_it_lacks(tmp_path: Path) -> None:
    run, new = trained("fedper", tmp_path, data=clients(3)), clients(1, first="x")
    folder = idiolect.join(run, new, formats=WEIGHTS).folder
    kept = (folder / "x.safetensors").stat().st_mtime_ns
    assert idiolect.join(run, new, formats=["program"]).folder == folder
    record = json.loads((folder / "joining.json").read_text())
    assert set(record["sha256"]) == {"clients.parquet", "x.json", "x.pt2", "x.safetensors"}
    assert digests(folder)[str(folder / "x.json")] == record["sha256"]["x.json"]
    assert (folder / "x.safetensors").stat().st_mtime_ns == kept
    assert idiolect.join(run, new, steps=2, formats=WEIGHTS).folder == folder.with_name(
        f"{folder.name}-steps2"
    )


def test_the_table_keeps_clients_whose_metric_is_not_defined(tmp_path: Path) -> None:
    run = trained("fedper", tmp_path, data=clients(3))
    joined = idiolect.join(run, clients(2, first="x"), formats=WEIGHTS)
    joined.rows.loc[joined.rows["client"] == 3, "value"] = np.nan
    table = joined.table()
    assert table["after"].isna().tolist() == [True, False] and list(table["client"]) == ["x", "y"]
