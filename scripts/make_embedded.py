"""Makes the embedded dataset from the whole Fashion-MNIST: the first images of each class, in their order.

    python scripts/make_embedded.py --from DIR

Running it twice gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from idiolect.data import Dataset, load
from idiolect.data.embedded import ARCHIVE, CHECKSUMS, TEST_PER_CLASS, TRAIN_PER_CLASS
from idiolect.errors import UserError

EMBEDDED_FOLDER = Path(__file__).parents[1] / "src" / "idiolect" / "data" / "embedded"


def first_of_each_class(labels: npt.NDArray[np.int64], n_classes: int, count: int) -> npt.NDArray[np.int64]:
    """Returns the positions of the first `count` rows of each class, ascending."""
    positions = [np.flatnonzero(labels == label)[:count] for label in range(n_classes)]
    short = [label for label, found in enumerate(positions) if len(found) < count]
    if short:
        raise UserError(f"classes {short} have fewer than {count} rows; give the whole Fashion-MNIST")
    return np.sort(np.concatenate(positions))


def make(whole: Dataset, folder: Path, train_per_class: int, test_per_class: int) -> Path:
    """Writes the archive and its checksum into the folder."""
    train = first_of_each_class(whole.train_y, whole.n_classes, train_per_class)
    test = first_of_each_class(whole.test_y, whole.n_classes, test_per_class)
    archive = folder / ARCHIVE
    np.savez_compressed(
        archive,
        train_x=whole.train_x[train],
        train_y=whole.train_y[train].astype(np.uint8),
        test_x=whole.test_x[test],
        test_y=whole.test_y[test].astype(np.uint8),
    )
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (folder / CHECKSUMS).write_text(f"{digest}  {ARCHIVE}\n", encoding="ascii")
    return archive


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="data_dir", required=True, help="folder that holds fashion-mnist/")
    parser.add_argument("--to", type=Path, default=EMBEDDED_FOLDER, help="folder to write to")
    arguments = parser.parse_args()
    try:
        whole = load("fashion-mnist", arguments.data_dir)
        archive = make(whole, arguments.to, TRAIN_PER_CLASS, TEST_PER_CLASS)
    except UserError as mistake:
        print(f"make_embedded: {mistake}", file=sys.stderr)
        return 2
    print(f"{archive} ({archive.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
