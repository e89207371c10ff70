"""A program for `test_kills`: kills a run at many moments, takes it up again, and says whether it is the same.

    python kill_and_resume.py calls FOLDER METHOD STORE CACHE_MB EVERY
    python kill_and_resume.py random FOLDER METHOD ENGINE KILLS [RAY_ADDRESS]

With `calls` the run is a child process which ends itself by SIGKILL before its n-th call of the system that changes the
disk, or half-way through it where the call writes a row; n runs over the calls in steps of EVERY.  With `random` the
child is killed from outside after a random time, again and again, until it has been killed KILLS times; a run that is
done is compared and another begins.  The one line of output holds the numbers of calls and kills, and the moments after
which the resumed run differs from one that nobody killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from idiolect.engines import EngineChoice
from idiolect.experiments import Execution, Experiment, run
from idiolect.experiments.rounds.private_state_placement import open_private_state, place_private_state
from idiolect.experiments.setting import prepare
from idiolect.records import load_checkpoint

CALLS = ("open", "pwrite", "fsync", "replace", "rename", "unlink")
CLIENTS = 9
ON_DISK = Execution(checkpoint_every=1, store="disk", store_cache=0)


def experiment(method: str, rounds: int = 5) -> Experiment:
    return Experiment(
        method=method,
        dataset=f"synthetic(n_clients={CLIENTS}, samples_per_client=20, n_features=8, n_classes=3)",
        partition="by_id",
        clients=CLIENTS,
        model="mlpnet(hidden=8)",
        rounds=rounds,
        participation_rate=0.4,
        local_epochs=1,
        batch_size=8,
        evaluate_every=2,
    )


def watch_calls(kill_at: int | None) -> list[int]:
    """Counts the calls in the list that is given back, and ends the process at one of them."""
    count = [0]

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            if count[0] == kill_at:
                if name == "pwrite":
                    handle, content, at = arguments
                    original(handle, content[: len(content) // 2], at)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    return count


def content(out: Path, asked: Experiment) -> tuple[Any, ...]:
    """All that must be the same: both tables without the seconds, and every client's private state."""
    (folder,) = out.iterdir()
    assert not folder.name.endswith(".partial")
    setting = prepare(asked, EngineChoice("loop", "cpu", "as asked"))
    found = load_checkpoint(folder)
    assert found is not None
    _, state, tables = found
    store = open_private_state(setting, place_private_state(setting, folder, ON_DISK), folder)
    store.restore(state["private"])
    leaves = torch.utils._pytree.tree_leaves((state["server"], store.rows(range(CLIENTS))))
    store.close()
    rounds = tables["rounds"].drop_columns(["seconds"])
    return tables["rows"].to_pylist(), rounds.to_pylist(), [leaf.numpy().tobytes() for leaf in leaves]


def in_child(work: Callable[[], Any]) -> int:
    """Forks a process that does something and ends; returns its number."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def kill_at_calls(base: Path, method: str, store: str, cache_mb: float, every: int) -> dict[str, Any]:
    options = {"engine": "loop", "checkpoint_every": 2, "store": store, "store_cache": cache_mb}
    asked = experiment(method)
    run(asked, out=base / "whole", **options)
    expected = content(base / "whole", asked)
    count_file = base / "count"
    if (child := os.fork()) == 0:
        count = watch_calls(None)
        run(asked, out=base / "counted", **options)
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
            run(asked, out=out, **options)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (moment, status)
        run(asked, out=out, resume=True, **options)
        if content(out, asked) != expected:
            different.append(moment)
    return {"calls": calls, "kills": len(range(1, calls + 1, every)), "different": different}


def kill_at_random(
    base: Path, method: str, engine: str, kills: int, ray_address: str | None = None
) -> dict[str, Any]:
    """Each kill comes a random time after the run opened its folder or wrote a checkpoint; the next goes on at once.

    Two in three wait for a checkpoint, so that the run comes to its end however slow its start is.
    """
    workers = {"workers": 2} if engine in ("pool", "ray") else {}
    options = {
        "engine": engine,
        "device": "cpu",
        "checkpoint_every": 2,
        "store": "disk",
        "store_cache": 0,
        "ray_address": ray_address,
        **workers,
    }
    asked, chance = experiment(method, rounds=24), random.Random(0)
    began = time.monotonic()
    assert os.waitpid(in_child(lambda: run(asked, out=base / "whole", **options)), 0)[1] == 0
    whole = time.monotonic() - began  # with the preparation, which is less than half of it
    expected = content(base / "whole", asked)
    done, runs, different, since = 0, 0, [], 0
    while done < kills:
        out = base / f"killed-{runs}"
        sign = chance.choice([opened, checkpoints, checkpoints])
        seen = sign(out)
        child = in_child(lambda out=out: run(asked, out=out, resume=True, **options))
        over = wait_until(lambda seen=seen, out=out, sign=sign: sign(out) != seen, child)
        over = over or wait_until(lambda: False, child, chance.uniform(0, whole / 8))
        if not over:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            done, since = done + 1, since + 1
            print(f"kill {done} of {kills}, run {runs}", file=sys.stderr, flush=True)
        assert os.WIFSIGNALED(status) or status == 0, (runs, done, status)
        if status == 0:
            if content(out, asked) != expected:
                different.append((runs, done))
            shutil.rmtree(out)
            runs, since = runs + 1, 0
    if since:  # the last run is completed
        run_again = in_child(lambda: run(asked, out=out, resume=True, **options))
        assert os.waitpid(run_again, 0)[1] == 0
        if content(out, asked) != expected:
            different.append((runs, done))
        runs += 1
    return {"kills": done, "runs": runs, "different": different}


def opened(out: Path) -> Any:
    """Changes when a process has opened a run there."""
    return [path.stat().st_mtime_ns for path in out.glob("*.partial/manifest.json")]


def checkpoints(out: Path) -> Any:
    """Changes when a checkpoint is complete."""
    return {path.name for path in out.glob("*.partial/checkpoint-*.safetensors")}


def wait_until(sign: Callable[[], bool], child: int, seconds: float = 300) -> bool:
    """Waits for a sign, or some time; returns whether the process has ended meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not sign():
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(0.002)
    return False


if __name__ == "__main__":
    torch.set_num_threads(1)
    how, place, *words = sys.argv[1:]
    if how == "calls":
        found = kill_at_calls(Path(place), words[0], words[1], float(words[2]), int(words[3]))
    else:
        found = kill_at_random(Path(place), words[0], words[1], int(words[2]), *words[3:])
    print(json.dumps(found))
