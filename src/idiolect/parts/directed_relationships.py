"""Directed relationships: a client learns how much of every client's core model its own model holds (APPLE).

w_i = sum_j p_ij c_j                                   personal model of client i, from all core models c_j
c_i <- c_i - eta_1 p_ii g,   g = grad F_i(w_i)         the core models of others stay as they were received
p_ij <- p_ij - eta_2 (<g, c_j> + lambda(t) mu (p_ij - p_0)),          p_0 = 1 / N, where all p_ij begin
lambda(t) = (cos(pi t / L) + 1) / 2 or 0.001^(t / L) in the rounds t = 0, 1, ..., L - 1, then 0
Luo, Wu, IJCAI 2022, algorithm 1, https://arxiv.org/abs/2110.08394
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    CarryingGradient,
    Flat,
    Flats,
    GradientFunction,
    Initial,
    Message,
    Model,
    Part,
    Predictor,
    Results,
    ServerView,
    Slot,
    Uploaded,
    View,
    derive,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import inner_product, tree_map
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.model_vectors import as_models, as_vectors

__all__ = ["directed_relationships", "picked_cores", "schedule_at"]

NAME = "directed_relationships"
LAST = 1e-3  # of the exponential schedule, in round L
BASE = 1.5  # the least base of the odds of being picked


def schedule_at(round: int, rounds: float, shape: str) -> float:
    """Returns lambda in a round from 0, of a schedule that ends after so many ``rounds`` (L)."""
    if round >= rounds:
        return 0.0
    return (math.cos(math.pi * round / rounds) + 1) / 2 if shape == "cosine" else LAST ** (round / rounds)


def picked_cores(
    relations: NDArray[np.floating],
    received: NDArray[np.floating],
    others: Sequence[int],
    count: int,
    base: float,
    random: np.random.Generator,
) -> list[int]:
    """Returns ``count`` different clients, or all ``others`` if they are fewer.

    Clients whose core model was never received come first, in random order.  The rest are drawn with odds of ``base``
    to the power of |p_ij|.
    """
    shuffled = random.permutation(np.asarray(others, np.int64))
    new, known = shuffled[received[shuffled] == 0], shuffled[received[shuffled] > 0]
    room = min(count - len(new), len(known))
    if room <= 0:
        return [int(client) for client in new[:count]]
    powers = np.abs(relations[known]) * math.log(base)
    odds = np.exp(powers - powers.max())
    drawn = random.choice(known, size=room, replace=False, p=odds / odds.sum())
    return [int(client) for client in (*new, *drawn)]


@keeps_options
def directed_relationships(
    models: int | None = 5,
    rate: float = 1e-3,
    weight: float = 0.1,
    share: float = 0.2,
    schedule: str = "cosine",
    core_lr_scale: float | None = None,
) -> Part:
    """Every client trains its own core model and its relationships p_i through the mixture of all core models.

    Args:
        models: M >= 1, core models of others that a client receives in a round; None is all of them.
        rate: eta_2 >= 0, of the relationships.
        weight: mu >= 0 of the term mu / 2 ||p_i - p_0||^2, which favours what all clients have in common.
        share: L in [0, 1], of the rounds of the run, in which that term fades.
        schedule: ``cosine`` or ``exponential``, how it fades.
        core_lr_scale: > 0, of the core model's steps, so that eta_1 is so many times the scene's learning rate; None is
            1 / p_ii, at most N, which makes up for p_ii beginning at 1 / N.

    Deviations: relationships begin at 1 / N, whatever the clients' numbers of rows, and all core models at the initial
    model.  The server keeps p_i, two numbers for each client of the population, and sends, beside M core models, the
    sum over all others in their shares, of the newest uploads: so a client stores no models of others, where in the
    paper it uses old copies of those that it does not receive.  Only relationships to received models are trained in a
    round.  A client not heard from is not received: its core model is still the initial one.  Relationships take plain
    steps; those of the core model are the scene's, and with Adam ``core_lr_scale`` does not change their length.
    Models are trained and scored with the client's own running statistics.
    """
    if models is not None:
        refuse_outside("models (M)", models, 1)
    refuse_outside("rate (eta_2)", rate, 0)
    refuse_outside("weight (mu)", weight, 0)
    refuse_outside("share (L)", share, 0, 1)
    refuse_unknown_choice("schedule", schedule, ("cosine", "exponential"))
    if core_lr_scale is not None:
        refuse_outside("core_lr_scale", core_lr_scale, 1e-12)

    def init_client(initial: Initial) -> Slot:
        zero = next(iter(initial.params.values())).new_zeros(())
        return {"model": dict(initial.params), "own share": zero}

    def init_kept(initial: Initial, population: int) -> Slot:
        like = next(iter(initial.params.values()))
        return {
            "core": dict(initial.params),
            "own share": like.new_full((), 1 / population),
            "relations": like.new_full((population,), 1 / population),
            "received": like.new_zeros(population),
        }

    def sources_of(clients: Sequence[int], rows: Slot, view: ServerView) -> list[list[int]]:
        """Returns whose core models each client is sent; -1 where there are too few."""
        clock, heard = view.clock, view.kept.clients
        count = max(clock.population - 1, 1) if models is None else models
        base = max(BASE, clock.round * count / clock.population)
        relations, received = (rows[name].cpu().numpy() for name in ("relations", "received"))
        found = []
        for place, client in enumerate(clients):
            random = np.random.default_rng(derive(view.seed, NAME, clock.round, client))
            others = [other for other in heard if other != client]
            some = picked_cores(relations[place], received[place], others, count, base, random)
            found.append(some + [-1] * (count - len(some)))
        return found

    def rest_of(clients: Sequence[int], sources: list[list[int]], shares: Tensor, view: ServerView) -> Tensor:
        """Returns for each client the sum of the core models that it is not sent, in its shares [C, N], as [C, P]."""
        left = shares.clone()
        for place, (client, some) in enumerate(zip(clients, sources, strict=True)):
            left[place, [n for n in (client, *some) if 0 <= n < left.shape[1]]] = 0
        strangers = sorted({*range(left.shape[1]), *clients} - {*view.kept.clients})
        first = as_vectors(view.kept.rows(strangers[:1] or clients[:1])["core"])
        total = torch.zeros(len(clients), first.shape[1]).to(first)
        if strangers:
            total = total + left[:, [n for n in strangers if n < left.shape[1]]].sum(1)[:, None] * first
        for known, rows in view.kept.blocks():
            total = total + left[:, known] @ as_vectors(rows["core"])
        return total.contiguous()

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        rows = view.kept.rows(clients)
        sources = sources_of(clients, rows, view)
        count, like = len(sources[0]), rows["relations"]
        place = torch.tensor(sources)
        real = (place >= 0).to(like)
        flat = [
            source if source >= 0 else client
            for client, some in zip(clients, sources, strict=True)
            for source in some
        ]
        cores = tree_map(lambda leaf: leaf.unflatten(0, (len(clients), count)), view.kept.rows(flat)["core"])
        shares = like.gather(1, place.clamp(min=0).to(like.device)) * real
        rest = rest_of(clients, sources, like, view)
        one = {name: leaf[0] for name, leaf in rows["core"].items()}
        return {
            "models": cores,
            "rest": as_models(rest, one),
            "relations": torch.cat([rows["own share"][:, None], shares], 1),
            "from": place.to(like),
        }

    def mixture(core: Flat, relations: Tensor, view: View) -> Flat:
        """Returns w_i."""
        rest, others = view.download["rest"], view.download["models"]
        return {
            name: rest[name] + relations[0] * core[name] + torch.tensordot(relations[1:], others[name], 1)
            for name in core
        }

    def carry(params: Flats, view: View) -> Slot:
        clock, relations = view.clock, view.download["relations"]
        pull = weight * schedule_at(clock.round, share * clock.rounds, schedule)
        return {"relations": relations, "pull": relations.new_full((), pull)}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        clock, others = view.clock, view.download["models"]
        real = torch.cat([torch.ones_like(view.download["from"][:1]), view.download["from"] >= 0])

        def through(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            core, p = params["model"], carry["relations"]
            grads, new = inner({**params, "model": mixture(core, p, view)}, buffers, batches)
            g = grads["model"]
            along = [(others[name] * g[name]).flatten(1).sum(1) for name in g]
            slopes = torch.cat([inner_product(g, core)[None], torch.stack(along).sum(0)])
            step = slopes + carry["pull"] * (p - 1 / clock.population)
            size = (clock.population * p[0]).clamp(max=1) if core_lr_scale is None else core_lr_scale * p[0]
            own = {name: size * leaf for name, leaf in g.items()}
            return {**grads, "model": own}, new, {**carry, "relations": p - rate * real * step}

        return through

    def trained(results: Results) -> tuple[Flat, Tensor]:
        """Returns the core model and the relationships that a client has after its local work."""
        found = results[UPLOAD]
        return found.params["model"], found.carry[NAME]["relations"]

    def upload(results: Results, view: View) -> Message:
        core, relations = trained(results)
        value = {"model": core, "relations": relations, "from": view.download["from"]}
        return Message(value, torch.ones_like(view.facts.weight))

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        before, value = view.kept.rows(uploaded.clients), uploaded.value
        relations, received = before["relations"].clone(), before["received"].clone()
        for place, sources in enumerate(value["from"].long()):
            real = (sources >= 0) & (sources < relations.shape[1])  # whatever a client says
            relations[place, sources[real]] = value["relations"][place, 1:][real]
            received[place, sources[real]] = 1
        own = value["relations"][:, 0]
        row = {"core": value["model"], "own share": own, "relations": relations, "received": received}
        return row, view.slot

    def finish(results: Results, view: View) -> Slot:
        core, relations = trained(results)
        return {"model": mixture(core, relations, view), "own share": relations[0]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        own = mixture(*trained(results), view) if results else view.private["model"]
        return {"composed": Predictor.of(Model(own, view.current.buffers))}

    def remarks(view: View) -> dict[str, Tensor]:
        return {"p(own)": view.private["own share"]}

    return Part(
        NAME,
        init_client=init_client,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        carry=carry,
        gradient=gradient,
        upload=upload,
        finish=finish,
        predictors=predictors,
        remarks=remarks,
        reveals=True,
        roles=("gradient rule", "main predictor", "uploaded models"),
        headline="composed",
    )
