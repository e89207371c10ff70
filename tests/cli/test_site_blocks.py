"""Every block of code on the site runs: page by page, in a clone of the repository, as a reader types it.

``PAGES`` says what a page needs, and which lines this machine runs otherwise: an address of another machine, a GPU
where there is none, hours of training.  What a page does not name there runs as it stands.
"""

from __future__ import annotations

import gzip
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ..child_process import child_process
from ..small_records import write_run
from .documented_commands import ROOT, SHELLS, Block, blocks_of

DOCS = ROOT / "docs"
DRIVER = Path(__file__).with_name("run_page.py")
STAND_INS = Path(__file__).with_name("stand_ins")  # has tiny files in place of published datasets
RUN_BY_US = {*SHELLS, "python", "sql", "toml"}
HOUR = 3600


def nothing_around(clone: Path) -> Iterator[dict[str, str]]:
    yield {}


@dataclass(frozen=True)
class Page:
    """How the blocks of a page run here.

    Args:
        replaced: what is typed, and what is run in its place.
        smaller: options that are put behind every line which begins with these words; the last option wins.
        order: numbers of the blocks in the order in which they run; all, as they stand, unless given.
        rows_of: a page whose Python blocks make the files that this page speaks of.
        before: gets the clone before the first block.
        around: what must be there while the blocks run; gets the clone, gives more replacements.
        environment: variables of the page's processes; ``{clone}`` is the clone's folder.
        needs: packages without which the page is skipped.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    smaller: dict[str, str] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    rows_of: str = ""
    before: Callable[[Path], None] = lambda clone: None
    around: Callable[[Path], Iterator[dict[str, str]]] = nothing_around
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def code(self, block: Block, replaced: dict[str, str]) -> str:
        """Returns what runs in place of a block."""
        code = block.code
        for typed, ours in (self.replaced | replaced).items():
            code = code.replace(typed, ours)
        for words, options in self.smaller.items():
            code = with_options(code, words, options)
        return code


def with_options(code: str, words: str, options: str) -> str:
    """Puts options behind every command that begins with these words, before its comment."""
    lines, is_open = [], False
    for line in code.splitlines():
        is_open = is_open or line.lstrip().startswith(words)
        if is_open and not line.endswith("\\"):
            command, mark, comment = line.partition("  #")
            line, is_open = f"{command.rstrip()} {options}{mark}{comment}", False
        lines.append(line)
    return "\n".join(lines) + "\n"


def two_records(clone: Path) -> None:
    """Writes records of two methods into the folders that the page on analysis names."""
    for folder in ("before", "after"):
        for method in ("fedavg", "map"):
            write_run(clone / "runs" / folder, method, 0)


def tiny_mirror(clone: Path) -> None:
    """Writes Fashion-MNIST and CIFAR-10 with a few images of noise, packed as their homes publish them."""
    mirror, random = clone.parent / "mirror", np.random.default_rng(0)
    mirror.mkdir()
    for part, count in (("train", 400), ("t10k", 100)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        for stem, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (mirror / f"{stem}.gz").write_bytes(gzip.compress(header + values.tobytes(), mtime=0))
    batches = mirror / "cifar-10-batches-py"
    batches.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        rows = {b"data": random.integers(0, 256, (40, 3072), np.uint8), b"labels": [*range(10)] * 4}
        (batches / name).write_bytes(pickle.dumps(rows, protocol=2))
    with tarfile.open(mirror / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(batches, batches.name)


def another_checkout(clone: Path) -> None:
    subprocess.run(["git", "clone", "-q", ROOT, clone.parent / "other-checkout"], check=True)


def fresh_environment(clone: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", clone / ".venv"], check=True)


def closed_ray(clone: Path) -> Iterator[dict[str, str]]:
    """A port and a folder of our own for the cluster that the page starts, whose processes end after it."""
    from idiolect.deploy.processes import free_port  # noqa: PLC0415 - needs the extra flower

    folder, port = (
        Path("/tmp") / f"idiolect-page-{os.getpid()}",
        free_port(),
    )  # Ray's sockets want a short path
    ours = f"--temp-dir={folder} --include-dashboard=false --num-cpus=2 --object-store-memory=100000000"
    try:
        yield {"--port=6379": f"--port={port} {ours}", "FIRST:6379": f"127.0.0.1:{port}"}
    finally:
        for place in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if str(folder).encode() in (place / "cmdline").read_bytes():
                    os.kill(int(place.name), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def three_machines(clone: Path) -> Iterator[dict[str, str]]:
    """The folders of the sites as the page has them carried to their machines, which are all this one."""
    from idiolect.deploy.processes import free_port  # noqa: PLC0415 - needs the extra flower

    random = np.random.default_rng(0)
    rows = {"x": random.integers(0, 256, (40, 1, 28, 28), np.uint8), "y": np.arange(40) % 10}
    np.savez(clone / "rows.npz", **rows)
    each = "for site in site-0 site-1 site-2; do"
    try:
        yield {
            # A third site, which the page names further down; as many rounds as its way back needs.
            "--sites 2 --no-data": "--sites 3 --rounds 14 --no-data",
            "--address 10.0.0.1:9093": f"--address 127.0.0.1:{free_port()} && mv work/sites/site-* .",
            "idiolect deploy key site-0": f"{each} idiolect deploy key $site",
            "cp rows.npz site-0/data/data.npz": "cp rows.npz $site/data/data.npz; cp $site/key.pub $site.pub",
            "idiolect deploy site site-0": "setsid idiolect deploy site $site >$site.log 2>&1 & done",
            "idiolect deploy up work                           #": (
                "idiolect deploy register work site-2 site-2.pub; idiolect deploy up work #"
            ),
            # A second deployment of that name, for which the page says what its option does.
            "deploy init work --method map": "deploy init secure/work --method map",
        }
    finally:
        for down in (["trial"], ["work"]):
            subprocess.run(
                [sys.executable, "-m", "idiolect", "deploy", "down", *down], cwd=clone, check=False
            )
        for place in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if place.name != str(os.getpid()) and (place / "cwd").resolve() == clone.resolve():
                    os.kill(int(place.name), signal.SIGKILL)


WITHOUT_GPU = {"--device cuda": "--device cpu", "tf32,bf16": "float32", "tf32": "float32"}
DRY = {"pip install": "pip install --dry-run"}  # this environment stays as it is
TINY = "--models dnn --samples 16 --population 4 --clients 2 --batch-size 8 --repeats 1 --warmup 1"
PAGES = {
    "docs/analysis.md": Page(before=two_records, needs=("duckdb",)),
    "docs/defaults.md": Page(),
    "docs/deploy.md": Page(around=three_machines, needs=("flwr",)),
    "docs/gpu.md": Page(
        replaced={} if torch.cuda.is_available() else WITHOUT_GPU, smaller={"idiolect bench": TINY}
    ),
    "docs/index.md": Page(),
    "docs/jobs.md": Page(rows_of="docs/your-own.md"),
    "docs/performance.md": Page(
        smaller={
            "idiolect bench": TINY,
            "python benchmarks": TINY,
            "python scripts/measure_costs.py": "fedavg map",
        },
        before=another_checkout,
    ),
    "docs/privacy.md": Page(
        replaced=DRY,
        smaller={"idiolect run": "--quick", "idiolect compare": "--quick --seeds 1"},
        needs=("dp_accounting",),
    ),
    "docs/ray.md": Page(
        replaced={"pip install 'idiolect[ray]'": "pip install --dry-run -c constraints.txt '.[ray]'"},
        order=(1, 0),  # the cluster is closed before it is started
        around=closed_ray,
        environment={
            "RAY_AUTH_MODE": "token"
        },  # exported by the first block, for the shell of the second as well
        needs=("ray", "flwr"),
    ),
    "docs/recommend.md": Page(smaller={"idiolect recommend": "--budget 3m"}, rows_of="docs/index.md"),
    "docs/report.md": Page(before=two_records),
    "docs/reproduction.md": Page(
        before=tiny_mirror,
        environment={
            "PYTHONPATH": str(STAND_INS),
            "MIRROR": "{clone}/../mirror",
            "IDIOLECT_DATA": "{clone}/data",
        },
    ),
    "docs/robustness.md": Page(
        smaller={
            'idiolect compare --methods "fedavg,ditto,fedper': "--seeds 1 --quick",
            "idiolect compare --beside-clean": "--quick",
        }
    ),
    "docs/tracking.md": Page(
        replaced={"pip install 'idiolect[": "pip install --dry-run -c constraints.txt '.["},
        environment={"WANDB_MODE": "offline"},
        needs=("mlflow", "tensorboard", "wandb"),
    ),
    "docs/tuning.md": Page(needs=("optuna",)),
    "docs/your-own.md": Page(needs=("onnx",)),
    "CONTRIBUTING.md": Page(
        replaced={
            "from idiolect.testing": "from idiolect.parts import proximal as my_part\nfrom idiolect.testing"
        }
    ),
    "SECURITY.md": Page(before=fresh_environment),
}


def pages_of_the_site() -> Iterator[Path]:
    yield from (ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md")))


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks_of(page.read_text("utf-8")) if block.language not in ("", "text")]


def test_every_page_with_a_block_runs():
    """A page whose blocks nothing runs has no place in the table, and neither has a block in a language of its own."""
    with_code = {
        str(page.relative_to(ROOT)): runnable(page) for page in pages_of_the_site() if runnable(page)
    }
    assert with_code.keys() == PAGES.keys()
    assert {block.language for blocks in with_code.values() for block in blocks} <= RUN_BY_US
    for page in pages_of_the_site():
        for block in blocks_of(page.read_text("utf-8")):
            typed = re.search(r"^\s*(?:\$ )?(?:idiolect|pip|make|python|import) ", block.code, re.MULTILINE)
            assert block.language not in ("", "text") or not typed, (
                f"{page.name}:{block.line} names no language"
            )


@pytest.mark.parametrize("name", PAGES)
def test_what_runs_in_place_of_a_line_stands_on_the_page(name):
    text = (ROOT / name).read_text("utf-8")
    page = PAGES[name]
    blocks = "\n".join(block.code for block in runnable(ROOT / name))
    assert [words for words in page.replaced if words not in blocks] == []
    for words, options in page.smaller.items():
        alone = Page(smaller={words: options})
        assert any(alone.code(block, {}) != block.code for block in runnable(ROOT / name)), words
    assert sorted(page.order) == list(range(len(runnable(ROOT / name)))) or not page.order, text[:40]


def test_options_stand_behind_the_line_that_they_make_smaller():
    block = Block(1, "bash", "idiolect run --x 1  # why\nidiolect compare \\\n  --y 2\nidiolect run\n")
    code = Page(smaller={"idiolect run": "--quick", "idiolect compare": "--seeds 1"}).code(block, {})
    assert code == (
        "idiolect run --x 1 --quick  # why\nidiolect compare \\\n  --y 2 --seeds 1\nidiolect run --quick\n"
    )


QUICK = ("CONTRIBUTING.md",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PAGES]
)
def test_blocks_of_a_page_run(name, tmp_path):
    page = PAGES[name]
    for package in page.needs:
        if find_spec(package) is None:
            pytest.skip(f"the page needs {package}")
    clone = tmp_path / "idiolect"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    page.before(clone)
    blocks = runnable(clone / name)
    with contextmanager(page.around)(clone) as replaced:
        assert [words for words in replaced if not any(words in block.code for block in blocks)] == []
        typed = [blocks[number] for number in page.order or range(len(blocks))]
        parts = [(each.language, each.line, page.code(each, replaced)) for each in typed]
        if page.rows_of:
            parts = [
                *(
                    (b.language, b.line, b.code)
                    for b in runnable(clone / page.rows_of)
                    if b.language == "python"
                ),
                *parts,
            ]
        done = run_page(name, parts, clone, page.environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    if name == "docs/deploy.md":
        rounds = pd.read_parquet(next((clone / "trial/server/runs").glob("*/rounds.parquet")))
        assert len(rounds) == 5


def run_page(
    name: str, parts: list[tuple[str, int, str]], clone: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs the blocks of a page one after the other: Python in one process, every shell block in a shell of its own."""
    path = os.pathsep.join([str(clone / ".venv/bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {key: value.format(clone=clone) for key, value in environment.items()}
    options = {"cwd": clone, "env": {**os.environ, "PATH": path, "HOME": str(clone.parent), **settings}}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with child_process([sys.executable, str(DRIVER), name], **options, **pipes) as driver:
        out, err = driver.communicate(repr(parts), timeout=HOUR)
    return subprocess.CompletedProcess(driver.args, driver.returncode, out, err)
