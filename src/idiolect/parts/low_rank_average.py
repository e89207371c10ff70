"""Low-rank average: clients send their update, and the server the mean one, as factors of least rank (FedKD).

g in R^(P x Q),   g ~ U_K S_K V_K,   K = min {k : sum_{i<=k} s_i^2 > T sum_i s_i^2},   s_1 >= s_2 >= ... singular values
T(t) = T_start + (T_end - T_start) t,   t the share of the rounds that is done, with the current one
theta <- theta + sum_k p_k g_k,   of the g_k as they arrive
Wu, Wu, Lyu, Huang, Xie, Nature Communications 2022, https://arxiv.org/abs/2108.13323
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import Clock, Flat, Flats, Initial, Message, Part, Results, View
from idiolect.core.part import keeps_options
from idiolect.core.trees import count_scalars
from idiolect.errors import refuse_outside
from idiolect.parts.average import average

__all__ = ["least_rank", "low_rank_average"]

NAME = "low_rank_average"


def is_matrix(tensor: Tensor) -> bool:
    """Whether a tensor has rows and columns; a convolution has a row for each of its outputs."""
    return tensor.dim() > 1 and min(len(tensor), tensor[0].numel()) > 1


def factors(tensor: Tensor, rank: int) -> int:
    """Returns the scalars of U_K, S_K and V_K, or of the tensor where these are no fewer."""
    rows, columns = len(tensor), tensor.numel() // len(tensor)
    return min(rank * (rows + columns + 1), tensor.numel())


def least_rank(values: Tensor, energy: float | Tensor) -> Tensor:
    """Returns the fewest singular values [R] whose squares hold more than ``energy`` of the sum; all if none do.

    >>> least_rank(torch.tensor([3.0, 2.0, 1.0]), 0.9).item(), least_rank(torch.zeros(2), 0.9).item()
    (2, 0)
    """
    reached = (values**2).cumsum(0)
    rank = ((reached <= energy * reached[-1]).sum() + 1).clamp(max=len(values))
    return torch.where(reached[-1] > 0, rank, 0)


def low_rank(model: Flat, origin: Flat, energy: float | Tensor) -> Flats:
    """Returns a model as it is after its distance from ``origin`` has travelled, and the ranks of its matrices.

    Whatever is no smaller as factors travels whole, with all its singular values, and so does what is not finite.
    """
    found, ranks = dict(model), {}
    for name in (name for name in model if is_matrix(model[name])):
        update = model[name] - origin[name]
        finite = update.isfinite().all()
        u, values, v = torch.linalg.svd(torch.where(finite, update, 0).flatten(1), full_matrices=False)
        rank = least_rank(values, energy)
        places = torch.arange(len(values), device=values.device)
        near = (u * torch.where(places < rank, values, 0)) @ v
        whole = (rank * (len(update) + v.shape[1] + 1) >= update.numel()) | ~finite
        found[name] = torch.where(whole, model[name], origin[name] + near.reshape(update.shape))
        ranks[name] = torch.where(whole, len(values), rank)
    return {"model": found, "rank": ranks}


@keeps_options
def low_rank_average(energy_start: float = 0.95, energy_end: float = 0.98) -> Part:
    """FedAvg on updates of low rank, whose bytes are counted as those of the factors.

    Args:
        energy_start: T_start in [0, 1], the share of the energy that is kept at the start; the first of T rounds
            is at T_start + (T_end - T_start) / T already.
        energy_end: T_end in [0, 1], the share in the last round; with both 1 nothing is lost, and this is FedAvg.

    Deviations: a matrix whose factors would be no smaller travels whole, and so do vectors.  A convolution is the
    matrix with a row for each output.  The server's mean update is reduced after rounds in which all clients took part,
    as in the paper; otherwise some of them could not rebuild the shared model from it, and it is sent whole.
    """
    refuse_outside("energy_start (T_start)", energy_start, 0, 1)
    refuse_outside("energy_end (T_end)", energy_end, 0, 1)
    plain = average()

    def energy(clock: Clock) -> float:
        return energy_start + (energy_end - energy_start) * min(clock.round + 1, clock.rounds) / clock.rounds

    def init_server(shared: Flat, initial: Initial) -> Flat:
        """The ranks of the last mean update; -1 where it was not reduced."""
        matrices = {name: leaf for name, leaf in shared.items() if is_matrix(leaf)}
        return {name: leaf.new_full((), -1, dtype=torch.int64) for name, leaf in matrices.items()}

    def upload(results: Results, view: View) -> Message:
        assert plain.upload
        model, weight = plain.upload(results, view)
        return Message(low_rank(model, view.origin.params, energy(view.clock)), weight)

    def origin(params: Flat, slot: Flat) -> Flats:
        return {"model": params, "rank": {}}

    def scalars(value: Flats) -> int:
        ranks, model = value["rank"], value["model"]
        return sum(factors(t, int(ranks[n])) if n in ranks else t.numel() for n, t in model.items())

    def merge(params: Flat, slot: Flat, mean: Flats, clock: Clock) -> tuple[Flat, Flat]:
        merged = {**params, **mean["model"]}
        if clock.cohort_size < clock.population:
            return merged, {name: torch.full_like(rank, -1) for name, rank in slot.items()}
        reduced = low_rank(merged, params, energy(clock))
        return reduced["model"], reduced["rank"]

    def scalars_down(params: Flat, slot: Flat) -> int:
        if any(int(rank) < 0 for rank in slot.values()):
            return count_scalars(params)
        return scalars({"model": params, "rank": slot})

    return plain._replace(
        name=NAME,
        init_server=init_server,
        upload=upload,
        origin=origin,
        scalars=scalars,
        scalars_down=scalars_down,
        merge=merge,
        roles=("server update", "uploaded models"),
        gives_way=False,
    )
