"""The limits of uploads: what a site may send to the mean beside tensors of the right form.

An upload is one number among many only while its weight and its length are of the size of the others'.  A weight lies
above 0 and is at most what the site has; a part's values are at most ``norm_bound`` times as long as those of the other
sites in the middle, or as the model that was sent if that is longer.  The site itself has no say in its own limit, and
none in lowering another's below that of the model sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import cast

import torch

from idiolect.core import Messages, ServerState, Tree
from idiolect.core.trees import tree_leaves
from idiolect.deploy.tensor_names import UnexpectedTensors, flatten, unflatten

__all__ = ["overlong", "overweight", "readable_upload"]


def readable_upload(tensors: Mapping[str, torch.Tensor], forms: Sequence[Messages]) -> Messages:
    """Returns the upload that tensors are.

    Raises:
        UnexpectedTensors: they have another form, are not finite, or a weight is not above 0.
    """
    upload = cast("Messages", unflatten(tensors, forms, "its upload"))
    for name, leaf in flatten(upload).items():
        if not bool(torch.isfinite(leaf).all()):
            raise UnexpectedTensors(f"its upload holds numbers that are not finite, the first in {name}")
    for part, (_, weight) in upload.items():
        if not weight > 0:
            raise UnexpectedTensors(
                f"the weight of {part} in its upload is {float(weight):.4g} where more than 0 is expected"
            )
    return upload


def overweight(uploads: Mapping[str, Messages], most: Mapping[str, float], bound: float) -> dict[str, str]:
    """Returns by site why its upload weighs too much.

    The weights of a run are whole numbers, 1 or samples.  Where those of the other sites are not, the part makes its
    own weights, and they are bounded as norms are.

    Args:
        most: by site, its weight in the run at most.
    """
    found: dict[str, str] = {}
    for part in {part: None for upload in uploads.values() for part in upload}:
        weights = {site: float(upload[part][1]) for site, upload in uploads.items() if part in upload}
        for site, weight in weights.items():
            usual = median_low([other for name, other in weights.items() if name != site] or [most[site]])
            limit = most[site] if usual.is_integer() else bound * usual
            if weight > limit:
                found.setdefault(
                    site,
                    f"the weight of {part} in its upload is {weight:.4g} where at most {limit:.4g} is expected",
                )
    return found


def overlong(uploads: Mapping[str, Messages], sent: ServerState, bound: float) -> dict[str, str]:
    """Returns by site why its upload is too long; empty where all are within ``bound``."""
    found: dict[str, str] = {}
    floor = _norm(sent["params"])
    for part in {part: None for upload in uploads.values() for part in upload}:
        norms = {site: _norm(upload[part][0]) for site, upload in uploads.items() if part in upload}
        for site, norm in norms.items():
            others = [other for name, other in norms.items() if name != site]
            usual = max(floor, median_low(others)) if others else floor
            if usual and norm > bound * usual:
                found.setdefault(
                    site,
                    f"its upload of {part} has the norm {norm:.3g}, and {usual:.3g} is usual (norm_bound is {bound:g})",
                )
    return found


def _norm(tree: Tree) -> float:
    """Returns the Euclidean norm of all numbers of a tree, infinite only where no number of 64 bits holds it."""
    leaves = [leaf.double().reshape(-1) for leaf in tree_leaves(tree) if leaf.is_floating_point()]
    if not leaves:
        return 0.0
    whole = torch.cat(leaves)
    largest = whole.abs().max() if whole.numel() else whole.new_zeros(())
    return float(largest * (whole / largest).norm()) if largest > 0 else 0.0
