"""A new part, here a regulariser that keeps features small, added to methods of the package.

python examples/new_part.py
"""

import idiolect
from idiolect.core import Batch, Loss, Out, Part, Tree, View
from idiolect.reports import plain_rows, summarise


def small_features(weight: float = 1e-4) -> Part:
    """Minimises F_k(w) + weight/2 mean_i ||h_i||^2, the mean over the real rows of a batch."""

    def loss(inner: Loss, view: View) -> Loss:
        def total(params: Tree, batch: Batch, out: Out):
            size = (out.features**2).sum(-1) * batch.mask
            return inner(params, batch, out) + weight / 2 * size.sum() / batch.mask.sum().clamp(min=1)

        return total

    return Part("small_features", loss=loss)


if __name__ == "__main__":
    idiolect.register("small_features", small_features)
    added = ["fedavg", "fedavg + small_features(weight=0.001)", "fedper + small_features"]
    small = {"model": "mlpnet(hidden=16)", "clients": 6, "rounds": 2, "local_epochs": 1, "quiet": True}
    done = idiolect.compare(added, **small)
    for row in plain_rows(summarise(done.runs)):
        print("  ".join(f"{cell:<36}" for cell in row[:4]))
