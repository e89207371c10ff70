"""A program for `test_private_state`: kills a run at many moments, takes it up again, and says whether it is the same.

    python kill_and_resume.py FOLDER METHOD STORE CACHE_MB EVERY

The run is a child process which ends itself by SIGKILL before its n-th call of the system that changes the disk, or
half-way through it where the call writes a row; n runs over the calls in steps of EVERY.  The one line of output
holds the number of calls, and the moments after which the resumed run differs from one that nobody killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from idiolect.engines import EngineChoice
from idiolect.experiments import Execution, Experiment, run
from idiolect.experiments.private_state_placement import open_private_state, place_private_state
from idiolect.experiments.setting import prepare
from idiolect.records import load_checkpoint

CALLS = ("pwrite", "fsync", "replace", "rename")
CLIENTS = 9
ON_DISK = Execution(checkpoint_every=1, store="disk", store_cache=0)


def experiment(method: str) -> Experiment:
    return Experiment(
        method=method,
        dataset=f"synthetic(n_clients={CLIENTS}, samples_per_client=20, n_features=8, n_classes=3)",
        partition="by_id",
        clients=CLIENTS,
        model="mlpnet(hidden=8)",
        rounds=5,
        participation_rate=0.4,
        local_epochs=1,
        batch_size=8,
        evaluate_every=2,
    )


def watch_calls(kill_at: int | None) -> list[int]:
    """Counts the calls in the list that is given back, and ends the process at one of them."""
    count = [0]

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] == kill_at:
                if name == "pwrite":
                    handle, content, at = arguments
                    original(handle, content[: len(content) // 2], at)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        return call

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    return count


def content(out: Path, method: str) -> tuple[Any, ...]:
    """All that must be the same: both tables without the seconds, and every client's private state."""
    (folder,) = out.iterdir()
    setting = prepare(experiment(method), EngineChoice("loop", "cpu", "as asked"))
    found = load_checkpoint(folder)
    assert found is not None
    _, state, tables = found
    store = open_private_state(setting, place_private_state(setting, folder, ON_DISK), folder)
    store.restore(state["private"])
    leaves = torch.utils._pytree.tree_leaves((state["server"], store.rows(range(CLIENTS))))
    store.close()
    rounds = tables["rounds"].drop_columns(["seconds"])
    return tables["rows"].to_pylist(), rounds.to_pylist(), [leaf.numpy().tobytes() for leaf in leaves]


def main(base: Path, method: str, store: str, cache_mb: float, every: int) -> None:
    options = {"engine": "loop", "checkpoint_every": 2, "store": store, "store_cache": cache_mb}
    run(experiment(method), out=base / "whole", **options)
    expected = content(base / "whole", method)
    count_file = base / "count"
    if (child := os.fork()) == 0:
        count = watch_calls(None)
        run(experiment(method), out=base / "counted", **options)
        count_file.write_text(str(count[0]))
        os._exit(0)
    os.waitpid(child, 0)
    calls = int(count_file.read_text())
    different = []
    for moment in range(1, calls + 1, every):
        out = base / "killed"
        shutil.rmtree(out, ignore_errors=True)
        if (child := os.fork()) == 0:
            watch_calls(moment)
            run(experiment(method), out=out, **options)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (moment, status)
        run(experiment(method), out=out, resume=True, **options)
        if content(out, method) != expected:
            different.append(moment)
    print(json.dumps({"calls": calls, "different": different}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]))
