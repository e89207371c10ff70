"""Informed average: clients count by the trace of their Fisher information after training (FedAS).

theta_{t+1} = sum_k F_k theta_t^k / sum_k F_k
F_k = 1/n_k sum_i ||d log p(y_i | x_i; theta_t^k) / dtheta||^2     over the client's training data
Yang, Huang, Ye, CVPR 2024 (client-synchronisation)
"""

from __future__ import annotations

import torch

from idiolect.core import Clock, Message, Part, Plan, Results, Scene, Stage, View
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_leaves
from idiolect.parts.average import average
from idiolect.parts.squared_gradients import squared_gradients

__all__ = ["informed_average"]

NAME = "informed_average"
STAGE = "information"
LEAST = 1e-12


@keeps_options
def informed_average() -> Part:
    """Weighs the clients of a round by how much their data still say about their model's parameters.

    Deviations: none.  The trace is that of single examples; squares of a batch's mean gradient would depend on the
    size of the batch.  The weights of the run, by samples or alike, are not used.
    """
    plain = average()

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        return plan._replace(before=(*plan.before, Stage(STAGE, NAME, measure=squared_gradients())))

    def upload(results: Results, view: View) -> Message:
        assert plain.upload
        squares = results[STAGE].measured
        trace = torch.stack([leaf.sum() for leaf in tree_leaves(squares["sum"])]).sum()
        value, _ = plain.upload(results, view)
        return Message(value, (trace / squares["rows"].clamp(min=1)).clamp(min=LEAST))

    return plain._replace(name=NAME, stages=stages, upload=upload, weighs=True, gives_way=False)
