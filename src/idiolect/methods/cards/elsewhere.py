"""Where else methods are implemented: only what was seen in the files of these projects."""

from __future__ import annotations

__all__ = ["ELSEWHERE", "elsewhere"]

ELSEWHERE = {
    "PFLlib": """
        local fedavg fedprox scaffold feddyn moon fedper fedrep lg_fedavg feddml apfl pfedme perfedavg_fo
        fedproto ditto fedrod fedphp fedbabu fedbn fedala fedas feddbe gpfl fedcp fedlc fedntd fedamp
        fedfomo fedpac feddistill fedgh fedcac apple fedgen fedkd
        """,
    "FL-bench": """
        local fedavg fedprox scaffold fedavgm fedadagrad fedadam fedyogi feddyn moon fedper fedrep lg_fedavg
        apfl pfedme perfedavg_fo perfedavg_hf fedproto ditto fedrod fedbabu fedbn fedala fedas fedlc fedfomo
        pfedhn fedem fedpac pfedsim cfl knn_per fedgen floco
        """,
    "FLGo": """
        local fedavg fedavg_lu fedprox scaffold fedavgm fednova feddyn moon fedper fedrep lg_fedavg apfl
        pfedme perfedavg_fo fedproto ditto fedrod fedphp fedbabu fedbn fedala gpfl fedcp fedamp fedfomo
        pfedhn fedpac apple
        """,
    "FL4Health": "fedavg fedprox scaffold moon fedper fedrep apfl ditto fedbn gpfl",
    "FederatedScope": "fedavg fedadam fedrep ditto pfedme fedbn fedem",
    "Flower": """
        fedavg fedprox scaffold fedavgm fedadagrad fedadam fedyogi fednova moon fedper fedrep fedbn
        floco
        """,
}  # project -> names of methods


def elsewhere(name: str) -> list[str]:
    """Returns the projects in which a method was seen.

    >>> elsewhere("fedphp")
    ['PFLlib', 'FLGo']
    """
    return [project for project, names in ELSEWHERE.items() if name in names.split()]
