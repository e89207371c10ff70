"""The limits of uploads: what a site may send to the mean beside tensors of the right form.

An upload is one number among many only while its weight and its length are of the size of the others'.  A weight lies
above 0 and is at most what the site has.  A part's values are at most ``norm_bound`` times as long as those of the
other sites in the middle, or as the model that was sent if that is longer; weights that a part makes itself are
bounded likewise, with 1 in the place of the model.  The method says which rule applies, and no site.  A site has no
say in its own limit, and fewer than half of the sites none in that of an honest one: of two in the middle, the
larger counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from statistics import median_high
from typing import cast

import torch

from idiolect.core import Messages, ServerState, Tree
from idiolect.core.trees import tree_leaves
from idiolect.deploy.tensor_names import UnexpectedTensors, flatten, unflatten

__all__ = ["odd_ones", "overlong", "overweight", "readable_upload"]

USUAL_WEIGHT = 1.0  # of weights that a part makes itself, at least
FEWEST = (
    3  # uploads that bound each other where nothing else does: of two, one would choose the other's limit
)


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


def odd_ones(kinds: Mapping[str, Hashable]) -> list[str]:
    """Returns the sites whose answers are of another kind than most; all of them where no kind leads.

    Args:
        kinds: by site, the kind of its answer, which is one of those that the dry rounds know.
    """
    leading = Counter(kinds.values()).most_common(2)
    tied = len(leading) == 2 and leading[0][1] == leading[1][1]
    return [site for site, kind in kinds.items() if tied or kind != leading[0][0]]


def overweight(
    uploads: Mapping[str, Messages], most: Mapping[str, float], own: Collection[str], bound: float
) -> dict[str, str]:
    """Returns by site why its upload weighs too much.

    Args:
        most: by site, its weight in the run at most.
        own: the messages whose weights a part makes itself.
    """
    found: dict[str, str] = {}
    for part in _parts(uploads):
        weights = {site: float(upload[part][1]) for site, upload in uploads.items() if part in upload}
        for site, weight in weights.items():
            limit = bound * max(USUAL_WEIGHT, _middle_of_others(weights, site)) if part in own else most[site]
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
    for part in _parts(uploads):
        norms = {site: _norm(upload[part][0]) for site, upload in uploads.items() if part in upload}
        if not floor and len(norms) < FEWEST:
            continue
        for site, norm in norms.items():
            usual = max(floor, _middle_of_others(norms, site))
            if usual and norm > bound * usual:
                found.setdefault(
                    site,
                    f"its upload of {part} has the norm {norm:.3g}, and {usual:.3g} is usual (norm_bound is {bound:g})",
                )
    return found


def _parts(uploads: Mapping[str, Messages]) -> list[str]:
    return list({part: None for upload in uploads.values() for part in upload})


def _middle_of_others(numbers: Mapping[str, float], site: str) -> float:
    """Returns the number of the other sites in the middle, 0 where there is no other."""
    return median_high([number for name, number in numbers.items() if name != site] or [0.0])


def _norm(tree: Tree) -> float:
    """Returns the Euclidean norm of all numbers of a tree, infinite only where no number of 64 bits holds it."""
    leaves = [leaf.double().reshape(-1) for leaf in tree_leaves(tree) if leaf.is_floating_point()]
    if not leaves:
        return 0.0
    whole = torch.cat(leaves)
    largest = whole.abs().max() if whole.numel() else whole.new_zeros(())
    return float(largest * (whole / largest).norm()) if largest > 0 else 0.0
