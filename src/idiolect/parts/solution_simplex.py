"""Solution simplex: clients share the corners of a simplex of heads, and each is given a region of it (Floco).

W(alpha) = sum_m alpha_m W_m,   alpha in the simplex of M corners;   body and bias shared as in FedAvg
rounds up to tau     every batch draws alpha uniformly from the simplex
then, client k       from R_k = {alpha in the simplex : |alpha - alpha_k|_1 <= rho}
alpha_k = P_z(kappa_k) / z,   P_z the projection onto the simplex of size z,   z = argmin sum |alpha_k - alpha_l|^-2
          kappa_k the first M principal components of the clients' updates of W_1 .. W_M
Floco+    min_v  E_{alpha in R_k} F_k(v(alpha)) + lambda/2 ||v - theta||^2,   v a simplex of the client's own
Grinwald, Wiesner, Nakajima, NeurIPS 2024, algorithms 1 and 2, https://arxiv.org/abs/2403.03333
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Flats,
    Forward,
    Initial,
    Loss,
    Message,
    Mode,
    Model,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    ServerView,
    Slot,
    Stage,
    Structure,
    Task,
    Trees,
    Uploaded,
    View,
    derive,
)
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.average import average
from idiolect.parts.proximity import FORMS

__all__ = ["furthest_scale", "on_simplex", "point_in_region", "principal_axes", "solution_simplex"]

NAME = "solution_simplex"
STAGE = "own simplex"
CORNERS = "corners"  # all but the first, which is the head of the main model
SPARE, PASSES = 8, 10  # axes beyond those asked for, and passes over the clients' updates that find them
SCALES, COMPARED = 1000, 256  # sizes z that are tried, and clients on which they are
NEAREST = 1e-4  # distance of two points that counts, for points that coincide
NULL = 1e-10  # of the first eigenvalue, below which an axis is rounding


def point_in_region(draws: Tensor, centre: Tensor, radius: float, placed: Tensor) -> Tensor:
    """Returns a point alpha [M] of the simplex, uniform if the client is not placed, else near its centre.

    Args:
        draws: [M + 1] from U(0, 1).
    """
    away = (-torch.log1p(-draws[:-1].clamp(max=1 - 1e-7))).clamp(min=1e-12)
    anywhere = away / away.sum()
    apart = anywhere - centre
    reach = (radius / apart.abs().sum().clamp(min=1e-12)).clamp(max=1)
    near = centre + draws[-1] ** (1 / max(len(centre) - 1, 1)) * reach * apart
    return torch.where(placed > 0, near, anywhere)


def on_simplex(kappa: Tensor, size: Tensor | float) -> Tensor:
    """Returns the nearest points [N, M] whose numbers are not negative and sum to ``size``, divided by it."""
    ordered = kappa.sort(-1, descending=True).values
    excess = ordered.cumsum(-1) - size
    count = (ordered * torch.arange(1, kappa.shape[-1] + 1).to(kappa) > excess).sum(-1, keepdim=True)
    raised = (kappa - excess.gather(-1, count - 1) / count).clamp(min=0)
    return raised / raised.sum(-1, keepdim=True)


def furthest_scale(kappa: Tensor) -> Tensor:
    """Returns the size z in (0, 1] with the least sum of inverse squared distances; the smallest of equals.

    Args:
        kappa: [N, M]; of more than 256 clients, at most 256 at even distances in the order of rows count.
    """
    kappa = kappa[:: -(-len(kappa) // COMPARED)]
    pairs = torch.triu_indices(len(kappa), len(kappa), 1)
    best, least = torch.ones_like(kappa[0, 0]), math.inf
    for size in torch.linspace(1e-4, 1, SCALES, dtype=torch.float64).to(kappa):
        points = on_simplex(kappa, size)
        apart = (points[pairs[0]] - points[pairs[1]]).norm(dim=-1).clamp(min=NEAREST)
        if (energy := (apart**-2).sum().item()) < least:
            best, least = size, energy
    return best


def principal_axes(blocks: Any, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Returns the mean [P] and the first principal axes [count, P] of rows that come in blocks [B, P].

    Axes along which the rows do not differ are zero.  An axis points where its largest number is positive.

    Args:
        blocks: () -> an iterator over them; they are read several times.
    """
    rows = sum(len(block) for block in blocks())
    mean = sum(block.sum(0) for block in blocks()) / rows
    generator = torch.Generator().manual_seed(seed)
    width = min(count + SPARE, len(mean))
    basis = torch.randn(len(mean), width, generator=generator, dtype=torch.float64).to(mean)
    for _ in range(PASSES):
        basis, _ = torch.linalg.qr(sum((block - mean).T @ ((block - mean) @ basis) for block in blocks()))
    scores = sum(((block - mean) @ basis).T @ ((block - mean) @ basis) for block in blocks())
    values, vectors = torch.linalg.eigh(scores)
    first = values.flip(0)[:count]
    axes = (basis @ vectors).flip(1).T[:count] * (first > NULL * first[0])[:, None]
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()
    return mean, torch.cat([axes, axes.new_zeros(count - len(axes), len(mean))])


@keeps_options
def solution_simplex(
    endpoints: int = 10,
    radius: float = 0.3,
    phase_one: float = 0.5,
    personal_epochs: float = 0,
    personal_weight: float = 1.0,
) -> Part:
    """Trains the simplex at random points, anywhere at first and then in each client's own region.

    Args:
        endpoints: M >= 1 corners; 1 is FedAvg.
        radius: rho >= 0 of a client's region.
        phase_one: tau / T in [0, 1], share of the rounds before clients are placed; with 1 they are never placed.
        personal_epochs: E_p >= 0 on a simplex of the client's own after the upload (Floco+); 0 is Floco.
        personal_weight: lambda >= 0 that keeps that simplex near the received one.

    Deviations: clients are placed by the last update that each sent before round tau, and who comes later by its first;
    in the paper all of them train in round tau to be placed.  The principal axes are found by subspace iteration, the
    size z on at most 256 clients.  A point of a region is not uniform in it: it lies on the way from the centre to a
    uniform point of the simplex.  The simplex is that of the classifier's weight, whose bias is shared.
    """
    refuse_outside("endpoints (M)", endpoints, 1)
    refuse_outside("radius (rho)", radius, 0)
    refuse_outside("phase_one (tau / T)", phase_one, 0, 1)
    refuse_outside("personal_epochs (E_p)", personal_epochs, 0)
    refuse_outside("personal_weight (lambda)", personal_weight, 0)
    plain, own_simplex = average(), personal_epochs > 0

    def check(structure: Structure, scene: Scene) -> None:
        if not structure.linear_head or structure.classifier not in structure.params:
            raise UserError(f"{NAME} needs a network whose classifier is a single linear layer and trained")

    def other_corners(initial: Initial) -> Tensor:
        head = initial.structure.classifier
        drawn = [initial.draw(f"{NAME} {m}", False).params[head] for m in range(2, endpoints + 1)]
        return torch.stack(drawn) if drawn else initial.params[head].new_zeros(0, *initial.params[head].shape)

    def init_server(shared: Flat, initial: Initial) -> Slot:
        corners = other_corners(initial)
        sent = torch.cat([shared[initial.structure.classifier][None], corners])
        return {
            "corners": corners,
            "sent": sent,
            "mean": torch.zeros_like(sent),
            "axes": sent.new_zeros(endpoints, *sent.shape),
            "size": sent.new_ones(()),
            "placed": sent.new_zeros(()),
        }

    def init_kept(initial: Initial, population: int) -> Slot:
        head = initial.params[initial.structure.classifier]
        return {"update": head.new_zeros(endpoints, *head.shape), "heard": head.new_zeros(())}

    def components(updates: Tensor, slot: Slot) -> Tensor:
        """Returns kappa [N, M] of updates [N, M, K, d]."""
        kappa: Tensor = (updates - slot["mean"]).flatten(1) @ slot["axes"].flatten(1).T
        return kappa

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        kept, slot = view.kept.rows(clients), view.slot
        placed = kept["heard"] * slot["placed"]
        centre = on_simplex(components(kept["update"], slot), slot["size"])
        return {
            "corners": slot["corners"].expand(len(clients), *slot["corners"].shape),
            "centre": torch.where(placed[:, None] > 0, centre, 1 / endpoints),
            "placed": placed,
        }

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        head, slot, kept = view.task.structure.classifier, view.slot, view.kept.rows(uploaded.clients)
        corners = torch.cat([uploaded.value["model"][head][:, None], uploaded.value["corners"]], 1)
        fixed = (kept["heard"] * slot["placed"])[:, None, None, None] > 0
        updates = torch.where(fixed, kept["update"], corners - slot["sent"])
        first = math.floor(phase_one * view.clock.rounds + 1e-9)
        if not slot["placed"] and first <= view.clock.round + 1 and first < view.clock.rounds:
            slot = {**slot, **places(uploaded.clients, updates, view)}
        sent = torch.cat([view.shared.params[head][None], slot["corners"]])
        return {"update": updates, "heard": torch.ones_like(kept["heard"])}, {**slot, "sent": sent}

    def places(clients: Sequence[int], updates: Tensor, view: ServerView) -> Slot:
        """Returns what places clients on the simplex: by what is kept of all, and these updates of this round."""

        def blocks() -> Iterator[Tensor]:
            yield updates.flatten(1)
            for others, kept in view.kept.blocks():
                places = [i for i, client in enumerate(others) if client not in set(clients)]
                if places:
                    yield kept["update"][places].flatten(1)

        mean, axes = principal_axes(blocks, endpoints, derive(view.seed, NAME))
        kappa = torch.cat([(block - mean) @ axes.T for block in blocks()])
        shape = updates.shape[1:]
        found = {"mean": mean.reshape(shape), "axes": axes.reshape(-1, *shape), "size": furthest_scale(kappa)}
        return {**found, "placed": torch.ones_like(view.slot["placed"])}

    def at(point: Tensor, model: Flat, corners: Tensor, task: Task) -> Flat:
        """Returns the model at a point of its simplex."""
        head = task.structure.classifier
        return {**model, head: point[0] * model[head] + torch.tensordot(point[1:], corners, 1)}

    def drawn(batch: Batch, view: View) -> Tensor:
        return point_in_region(batch.draws[NAME], view.download["centre"], radius, view.download["placed"])

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return {**params, NAME: {CORNERS: view.download["corners"]}}, buffers

    def forward(inner: Forward, view: View) -> Forward:
        def mixed(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            model = at(drawn(batch, view), params["model"], params[NAME][CORNERS], view.task)
            return inner({**params, "model": model}, buffers, batch, train)

        return mixed

    def upload(results: Results, view: View) -> Message:
        assert plain.upload
        model, weight = plain.upload(results, view)
        return Message({"model": model, "corners": results[UPLOAD].params[NAME][CORNERS]}, weight)

    def origin(params: Flat, slot: Slot) -> Slot:
        return {"model": params, "corners": slot["corners"]}

    def merge(params: Flat, slot: Slot, mean: Slot, clock: Clock) -> tuple[Flat, Slot]:
        return {**params, **mean["model"]}, {**slot, "corners": mean["corners"]}

    def init_client(initial: Initial) -> Slot:
        return {"params": initial.params, "buffers": initial.buffers, "corners": other_corners(initial)}

    def begin_own(received: Trees, results: Results, view: View) -> Trees:
        own = view.private
        return {"model": own["params"], NAME: {CORNERS: own["corners"]}}, {"model": own["buffers"]}

    def near_received(view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            model, corners = params["model"], params[NAME][CORNERS]
            logits = view.task.head(at(drawn(batch, view), model, corners, view.task), out.features)
            apart = FORMS["sq_half"](model, view.origin.params)
            apart = apart + FORMS["sq_half"](params[NAME], {CORNERS: view.download["corners"]})
            return view.task.criterion(params, batch, out._replace(logits=logits)) + personal_weight * apart

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        stage = Stage(STAGE, NAME, begin_own, near_received, epochs=personal_epochs, has_minimum=True)
        return plan._replace(after=(*plan.after, stage))

    def finish(results: Results, view: View) -> Slot:
        params, buffers = results[STAGE].params, results[STAGE].buffers
        return {"params": params["model"], "buffers": buffers["model"], "corners": params[NAME][CORNERS]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        centre, shared = view.download["centre"], view.download["corners"]
        middle = torch.full_like(centre, 1 / endpoints)
        now = results[UPLOAD].params[NAME][CORNERS] if results else shared
        found = {
            "global": Model(at(middle, view.origin.params, shared, view.task), view.origin.buffers),
            "mix(region)": Model(at(centre, view.current.params, now, view.task), view.current.buffers),
        }
        if own_simplex:
            own = view.private
            found["companion"] = Model(at(centre, own["params"], own["corners"], view.task), own["buffers"])
        return {name: Predictor.of(model) for name, model in found.items()}

    def shared_model(model: Model, slot: Slot, task: Task) -> Predictor:
        middle = torch.full_like(slot["axes"][:, 0, 0, 0], 1 / endpoints)
        return Predictor.of(Model(at(middle, model.params, slot["corners"], task), model.buffers))

    def remarks(view: View) -> dict[str, Tensor]:
        return {f"alpha({m + 1})": view.download["centre"][m] for m in range(endpoints)}

    roles = ("server update", "uploaded models", "main predictor", "logit map")
    part = plain._replace(
        name=NAME,
        check=check,
        init_server=init_server,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        scored_with_download=True,
        start=start,
        draws=lambda structure: endpoints + 1,
        forward=forward,
        upload=upload,
        origin=origin,
        merge=merge,
        predictors=predictors,
        shared_model=shared_model,
        remarks=remarks,
        needs_head=True,
        needs_whole=True,
        roles=roles,
        headline="mix(region)",
        gives_way=False,
    )
    if not own_simplex:
        return part
    return part._replace(
        init_client=init_client,
        stages=stages,
        finish=finish,
        roles=(*roles, "companion predictor"),
        headline="companion",
    )
