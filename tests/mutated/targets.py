"""Every kind of file that is read: how a sound one is made, and a digest of what is read from it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from PIL import Image
from rich.console import Console

import idiolect
from idiolect.cli.config_file import read_config
from idiolect.cli.deploy import _print_status
from idiolect.data import Dataset, read_path
from idiolect.data.cinic import CLASSES as CINIC
from idiolect.data.readers import load_files
from idiolect.data.sources import SOURCES, Source
from idiolect.experiments.sweep.best_settings import read_sweep
from idiolect.experiments.sweep.trial_book import TrialBook
from idiolect.records import load_checkpoint, read_run, save_checkpoint

__all__ = ["Read", "Target", "targets"]

TABLES = ("rounds", "clients", "costs", "calibration", "confusion")
SETTINGS: dict[str, Any] = {
    "dataset": "synthetic(n_clients=3, samples_per_client=20, n_features=4, n_classes=2)",
    "partition": "by_id",
    "clients": 3,
    "model": "mlpnet(hidden=4)",
    "rounds": 2,
    "participation_rate": 1.0,
    "engine": "loop",
    "device": "cpu",
}


class Read(NamedTuple):
    """What was read.

    Args:
        digest: of the content.
        said: that something damaged was passed over.
        sums_differ: the SHA-256 sums that a run records of the files are others than those of the sound files.
    """

    digest: str
    said: bool = False
    sums_differ: bool = False


class Target(NamedTuple):
    """Files of one kind.

    Args:
        files: those that are damaged.
        read: reads them as a command does.
        sealed: their content is protected by a checksum, so that no other content may be read from them.  A file of
            the user's own without one says whatever it says.
    """

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Read]
    sealed: bool = True


def targets(folder: Path) -> list[Target]:
    """Writes one sound file or folder of every kind."""
    return [
        *_own_data(folder / "own"),
        *_known_data(folder / "known"),
        *_records(folder),
        *_sites(folder / "site"),
    ]


def digest_of(*values: Any) -> str:
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_tree(tree: Any) -> str:
    if isinstance(tree, dict):
        return digest_of([(str(key), digest_of_tree(value)) for key, value in tree.items()])
    if isinstance(tree, torch.Tensor):
        return digest_of(str(tree.dtype), tuple(tree.shape), tree.tolist())
    return digest_of(tree)


def digest_of_frames(frames: Iterable[pd.DataFrame]) -> str:
    return digest_of([frame.to_csv(index=False) for frame in frames])


# Datasets


def _own_data(folder: Path) -> list[Target]:
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 3)).astype(np.float32), random.integers(0, 2, 40)
    client = np.repeat(["ann", "bo", "cy", "di"], 10)
    frame = pd.DataFrame(
        {"a": x[:, 0], "b": x[:, 1], "kind": np.where(y, "u", "v"), "label": y, "client": client}
    )
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_csv(folder / "table.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "table.parquet")
    np.savez_compressed(folder / "arrays.npz", x=x, y=y, client=client)
    for name, one in frame.groupby("client"):
        (folder / "clients").mkdir(exist_ok=True)
        one.drop(columns="client").to_csv(folder / "clients" / f"{name}.csv", index=False)
    _write_saved(folder / "saved", frame)
    for number in range(8):
        path = folder / "images" / f"c{number // 4}" / f"k{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)

    forms = ("table.csv", "table.tsv", "table.parquet", "arrays.npz", "clients", "images", "saved")
    return [
        Target(
            f"own {name}",
            _files(folder / name),
            _dataset(partial(read_path, folder / name)),
            sealed=name == "arrays.npz",
        )
        for name in forms
    ]


def _write_saved(folder: Path, frame: pd.DataFrame) -> None:
    """Writes a table as Hugging Face's ``save_to_disk`` does."""
    folder.mkdir()
    table = pa.Table.from_pandas(frame).replace_schema_metadata(None)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "a", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text('{"description": ""}')


def _known_data(folder: Path) -> list[Target]:
    mnist, cifar, leaf = folder / "mnist", folder / "cifar-10-batches-py", folder / "femnist"
    for one in (mnist, cifar, leaf / "all_data"):
        one.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part in ("train", "t10k"):
        labels = np.repeat(np.arange(10), 2)
        images = random.integers(0, 256, (len(labels), 28, 28))
        for stem, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            raw = header + values.astype(np.uint8).tobytes()
            packed = part == "train"
            (mnist / (f"{stem}.gz" if packed else stem)).write_bytes(
                gzip.compress(raw, mtime=0) if packed else raw
            )
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        rows = random.integers(0, 256, (2, 3072), dtype=np.uint8)
        (cifar / name).write_bytes(pickle.dumps({"data": rows, "labels": random.integers(0, 10, 2).tolist()}))
    users = {
        f"f{k}": {"x": (random.integers(0, 256, (3, 784)) / 255).round(2).tolist(), "y": [k, 1, 2]}
        for k in range(2)
    }
    content = {"users": list(users), "num_samples": [3, 3], "user_data": users}
    (leaf / "all_data" / "all_data_0.json").write_text(json.dumps(content))

    _write_images(folder)
    _write_texts(folder)
    places = {
        "mnist": mnist,
        "cifar10": cifar,
        "femnist": leaf,
        "shakespeare-leaf": folder / "shakespeare-leaf",
    }
    places |= {"cinic-10": folder / "cinic-10", "tiny-imagenet": folder / "tiny-imagenet-200"}
    places |= {"flickr-aes": folder / "flickr-aes", "shakespeare-roles": folder / "shakespeare_roles.json"}
    options = {"flickr-aes": {"size": 8, "min_ratings": 1}, "shakespeare-roles": {"stride": 20}}
    return [
        Target(
            f"known {name}",
            _files(place),
            _dataset(partial(load_files, _without_sums(name), folder, **options.get(name, {}))),
            sealed=False,
        )
        for name, place in places.items()
    ]


def _without_sums(name: str) -> Source:
    """Returns a published dataset whose checksums nobody knows, so that its reader sees the damage."""
    source = SOURCES[name]
    parts = {
        part: tuple(replace(file, md5=None) for file in getattr(source, part))
        for part in ("train_files", "test_files")
    }
    return replace(source, **parts)


def _write_images(folder: Path) -> None:
    random = np.random.default_rng(1)

    def write(path: Path, side: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path, quality=50)

    for part in ("train", "test"):
        for name in CINIC:
            write(folder / "cinic-10" / part / name / "a.png", 32)
    tiny = folder / "tiny-imagenet-200"
    for wnid in ("n01", "n02"):
        write(tiny / "train" / wnid / "images" / f"{wnid}_0.JPEG", 64)
        write(tiny / "val" / "images" / f"{wnid}.JPEG", 64)
    (tiny / "wnids.txt").write_text("n01\nn02\n")
    (tiny / "val" / "val_annotations.txt").write_text(
        "n01.JPEG\tn01\t0\t0\t1\t1\nn02.JPEG\tn02\t0\t0\t1\t1\n"
    )
    ratings = ["worker, imagePair, score"]
    for number in range(4):
        write(folder / "flickr-aes" / "40K" / f"{number}.jpg", 9)
        ratings += [f"w{worker}, {number}.jpg, {1 + (number + worker) % 5}" for worker in range(2)]
    table = folder / "flickr-aes" / "FLICKR-AES_image_labeled_by_each_worker.csv"
    table.write_text("\n".join(ratings) + "\n")


def _write_texts(folder: Path) -> None:
    line = "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer the slings"
    text = line * 2
    users = {
        f"s{k}": {
            "x": [text[i : i + 80] for i in range(k, k + 3)],
            "y": [text[i + 80] for i in range(k, k + 3)],
        }
        for k in range(2)
    }
    leaf = folder / "shakespeare-leaf" / "all_data" / "a.json"
    leaf.parent.mkdir(parents=True)
    leaf.write_text(json.dumps({"users": list(users), "num_samples": [3, 3], "user_data": users}))
    roles = {f"Hamlet :: {name}": [line, line] for name in ("HAMLET", "GHOST")}
    (folder / "shakespeare_roles.json").write_text(json.dumps({"users": list(roles), "user_data": roles}))


def _dataset(load: Callable[[], Dataset]) -> Callable[[], Read]:
    """Returns what reads a dataset; a run names the files that it read by their sums, which then are others."""
    sums = load().manifest["sha256"]

    def whole() -> Read:
        data = load()
        return Read(data.digest, sums_differ=data.manifest["sha256"] != sums)

    return whole


# Records, checkpoints, models, sweeps, configs


def _records(folder: Path) -> list[Target]:
    made = idiolect.run("fedper", out=folder / "runs", quiet=True, **SETTINGS)
    run = made.folder
    made.export(0, out=folder / "models", formats=("weights",))
    model = sorted((folder / "models").rglob("*.json"))[0]
    stopped = folder / "stopped.partial"
    stopped.mkdir()
    tree = {"server": {"w": torch.arange(12.0).reshape(3, 4)}, "private": {0: {"h": torch.ones(3)}}}
    for round in (1, 2):
        tables = {"rows": pa.table({"round": [round] * 4, "value": [0.5 * round] * 4})}
        save_checkpoint(stopped, round, tree, tables)
    idiolect.sweep(["fedavg"], vary=["learning_rate=0.1,0.2"], out=folder / "sweeps", quiet=True, **SETTINGS)
    sweep = next((folder / "sweeps").glob("sweep-*"))
    config = folder / "config.toml"
    config.write_text(
        'method = "map"\nseed = 3\n[settings]\nrounds = 2\nlearning_rate = 0.1\nmodel = "mlpnet(hidden=4)"\n'
        '[execution]\nengine = "loop"\nworkers = 2\n[data]\npath = "a.csv"\nlabel_column = "label"\n'
    )

    def checkpoint() -> Read:
        said: list[str] = []
        round, found, tables = load_checkpoint(stopped, said.append) or (0, {}, {})
        rows = {name: table.to_pydict() for name, table in tables.items()}
        return Read(digest_of(round, digest_of_tree(found), rows), said=bool(said))

    def tables() -> Read:
        found = read_run(run)
        return Read(
            digest_of_frames([found.rounds, found.rows, found.costs, found.calibration, found.confusion])
        )

    def book() -> Read:
        found = TrialBook.open(sweep)
        found.close()
        return Read(digest_of(found.trials))

    weights = model.with_suffix(".safetensors")
    return [
        Target("checkpoint", _files(stopped), checkpoint),
        Target(
            "manifest",
            (run / "manifest.json",),
            lambda: Read(digest_of(read_run(run).manifest)),
            sealed=False,
        ),
        Target("tables", tuple(run / f"{name}.parquet" for name in TABLES), tables),
        Target(
            "table of load",
            (run / "clients.parquet",),
            lambda: Read(digest_of_frames([idiolect.load(run)])),
            sealed=False,
        ),
        Target(
            "weights", (weights,), lambda: Read(digest_of_tree(idiolect.load_model(weights).state_dict()))
        ),
        Target(
            "model page",
            (model,),
            lambda: Read(digest_of_tree(idiolect.load_model(model).state_dict())),
            sealed=True,
        ),
        Target(
            "sweep.json", (sweep / "sweep.json",), lambda: Read(digest_of(read_sweep(sweep))), sealed=False
        ),
        Target("trials", (sweep / "trials.json",), book, sealed=False),
        Target("config", (config,), lambda: Read(digest_of(read_config(config))), sealed=False),
    ]


# The files of a deployment


def _sites(folder: Path) -> list[Target]:
    try:
        from idiolect.deploy.audit import AuditLog  # noqa: PLC0415 - needs the extra
        from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
        from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment  # noqa: PLC0415
        from idiolect.deploy.heartbeat import condition  # noqa: PLC0415
        from idiolect.deploy.private_store import TRAINED, Position  # noqa: PLC0415
        from idiolect.deploy.progress import DeploymentProgress  # noqa: PLC0415
        from idiolect.deploy.site import Site  # noqa: PLC0415
        from idiolect.deploy.status import status  # noqa: PLC0415
    except ModuleNotFoundError:
        return []
    from idiolect.experiments import Experiment  # noqa: PLC0415

    settings = {key: value for key, value in SETTINGS.items() if key not in ("engine", "device")}
    made = create_deployment(
        Experiment(method="fedper", **settings), folder, DeploymentOptions(plain=True, min_sites=1)
    )
    own = made.site_folder(made.sites[0])
    site = Site.open(own)
    position = Position(0, TRAINED)
    site.store.write(position, site.setting.first_private(site.client), None)
    site.store.digest(site.setting.first_private(site.client))
    (state,) = site.store.folder.glob("state-*")
    progress = DeploymentProgress(made.server, rounds=2)
    progress.note("site-0", loss=0.5, judged_by="accuracy", accuracy=0.25)
    progress.heard("site-0", "is connected")
    beat = {"pid": 1, "at": 1.0, "answered": None}
    (own / "heartbeat.json").write_text(json.dumps(beat))

    def opened() -> Read:
        found = Site.open(own)
        setting = found.setting
        rows = [setting.federation.x.tolist(), setting.federation.y.tolist()]
        return Read(digest_of(found.plan.identity, rows, digest_of_tree(found.store.read(position))))

    def shown() -> Read:
        with io.StringIO() as text:
            _print_status(Console(file=text, width=100), status(made))
            return Read(digest_of(text.getvalue(), condition(own, 1)))

    def logged() -> Read:
        lines = list(AuditLog(made.server).lines())
        return Read(digest_of(lines), said=any(fault for _, fault in lines))

    return [
        Target("site data", (own / "data" / "data.npz",), opened),
        Target("site plan", (own / "experiment.json",), opened),
        Target("site state", (state,), opened),
        Target("site settings", (own / "site.toml", own / "key", own / "server.pub"), opened, sealed=False),
        Target(
            "deployment",
            (folder / "deployment.toml",),
            lambda: Read(digest_of(read_deployment(folder))),
            False,
        ),
        Target("progress", (made.server / "progress.json", own / "heartbeat.json"), shown, sealed=False),
        Target("audit log", (made.server / "audit.jsonl",), logged, sealed=False),
    ]


def _files(place: Path) -> tuple[Path, ...]:
    return (place,) if place.is_file() else tuple(sorted(path for path in place.rglob("*") if path.is_file()))
