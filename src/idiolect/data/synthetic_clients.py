"""Synthetic clients, labelled by linear models that differ by an adjustable skew.

    W_k = (W + s D_k) / sqrt(1 + s^2),   b_k = (b + s d_k) / sqrt(1 + s^2)      labelling of client k
    x ~ N(s (B_k 1 + e_k), Sigma),       Sigma_jj = j^-1.2                      inputs of client k
    y = argmax(W_k x + b_k)

with s the skew and W, b, D_k, d_k, B_k, e_k standard normal.  At s = 0 all clients share one
labelling and one input distribution.
Source: Li et al., "Federated optimization in heterogeneous networks" (FedProx), MLSys 2020, section 5.1,
https://arxiv.org/abs/1812.06127.

Deviations: one skew s in place of (alpha, beta).  There alpha moves all of W_k and b_k by one number u_k, so
it shifts every logit alike and changes no label, and W_k differs between clients even at alpha = 0; here s
moves from one shared model (s = 0) to independent ones (large s), at constant scale.  Clients have equally
many rows.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from idiolect.data.dataset import Dataset
from idiolect.errors import UserError

__all__ = ["labelling_models", "synthetic"]

Floats = npt.NDArray[np.float64]
_BASE, _MODEL, _CENTRE, _INPUTS = range(4)  # purposes of random draws


def synthetic(
    *,
    n_clients: int = 30,
    samples_per_client: int = 100,
    n_classes: int = 10,
    n_features: int = 60,
    skew: float = 1.0,
    seed: int = 0,
) -> Dataset:
    """Generates the training rows of every client, and a pooled test part with one row to five of training.

    Args:
        n_clients: clients, at least 1; client k is the same whatever their number.
        samples_per_client: training rows of each client, at least 1.
        n_classes: K >= 2.
        n_features: F >= 1; rows have shape [1, 1, F].
        skew: s >= 0; 0 makes the clients' rows independent and identically distributed.
        seed: >= 0; the same seed gives the same bytes.
    """
    _check_count("n_clients", n_clients, 1)
    _check_count("samples_per_client", samples_per_client, 1)
    weights, biases = labelling_models(n_clients, n_classes, n_features, skew, seed)
    n_test = math.ceil(samples_per_client / 5)
    rows = [_inputs(k, samples_per_client + n_test, n_features, skew, seed) for k in range(n_clients)]
    x = np.stack(rows).astype(np.float32)  # [C, N, F]
    y = (x.astype(np.float64) @ weights.transpose(0, 2, 1) + biases[:, None]).argmax(axis=2)  # [C, N]
    return Dataset(
        name="synthetic",
        train_x=x[:, n_test:].reshape(-1, 1, 1, n_features),
        train_y=y[:, n_test:].reshape(-1).astype(np.int64),
        test_x=x[:, :n_test].reshape(-1, 1, 1, n_features),
        test_y=y[:, :n_test].reshape(-1).astype(np.int64),
        n_classes=n_classes,
        mean=(0.0,),
        std=(1.0,),
        manifest=_manifest(n_clients, samples_per_client, n_test, skew, seed),
        train_ids=np.repeat(np.arange(n_clients, dtype=np.int64), samples_per_client),
    )


def _manifest(n_clients: int, samples_per_client: int, n_test: int, skew: float, seed: int) -> dict[str, Any]:
    return {
        "source": "generated, after Li et al., MLSys 2020",
        "licence": "none needed",
        "sha256": {},
        "counts": {"train": int(n_clients * samples_per_client), "test": int(n_clients * n_test)},
        "skew": float(skew),
        "seed": int(seed),
    }


def labelling_models(
    n_clients: int, n_classes: int, n_features: int, skew: float, seed: int
) -> tuple[Floats, Floats]:
    """Returns the model that labels each client's rows: W [C, K, F] and b [C, K], float64."""
    _check_count("n_classes", n_classes, 2)
    _check_count("n_features", n_features, 1)
    _check_count("seed", seed, 0)
    if isinstance(skew, bool) or not isinstance(skew, Real) or not (math.isfinite(skew) and skew >= 0):
        raise UserError(f"synthetic: skew must be a number of at least 0, not {skew!r}")
    shape = (n_classes, n_features + 1)  # the last column is b
    base = _generator(seed, _BASE).standard_normal(shape)
    own = np.stack([_generator(seed, _MODEL, k).standard_normal(shape) for k in range(n_clients)])
    models = (base + skew * own) / math.hypot(1, skew)
    return models[..., :-1], models[..., -1]


def _inputs(client: int, rows: int, n_features: int, skew: float, seed: int) -> Floats:
    centre = _generator(seed, _CENTRE, client)
    mean = skew * (centre.standard_normal() + centre.standard_normal(n_features))
    spread = np.arange(1, n_features + 1) ** -0.6  # square root of Sigma_jj
    return mean + spread * _generator(seed, _INPUTS, client).standard_normal((rows, n_features))


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(key))


def _check_count(key: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise UserError(f"synthetic: {key} must be a whole number of at least {least}, not {value!r}")
