"""The private state of a client that does not take part stays as it is, bit for bit."""

from __future__ import annotations

from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.federation import select

from .sameness import assert_exact, copied, leaves, privates
from .tiny import TINY, make_engine, setting_of

# slots that a client may write without being selected, and why
WRITTEN_BY_ALL = {"optimal_teacher": "every client scores each new shared model (PersFL, eq. 2)"}
WRITTEN_BY_NOBODY = {"fixed_head"}  # FedBABU's head, which stays as it was initialised


def test_unselected_clients_stay_unchanged(method: str) -> None:
    setting = setting_of(method)
    simulation = Simulation.start(setting, make_engine("loop", setting))
    everyone, written = set(range(setting.federation.population)), False
    for round in range(TINY.rounds):
        before = {client: copied(_own(state)) for client, state in privates(simulation).items()}
        cohort = set(select(TINY.participation_rate, len(everyone), seed=TINY.seed, round=round))
        simulation.advance()
        after = {client: copied(_own(state)) for client, state in privates(simulation).items()}
        for client in everyone - cohort:
            assert_exact(after[client], before[client])
        changed = (not after[c][path].equal(leaf) for c in cohort for path, leaf in before[c].items())
        written = any(changed) or written
    kept = {path[2] for path in leaves({c: _own(state) for c, state in privates(simulation).items()})}
    assert written or kept <= WRITTEN_BY_NOBODY


def _own(private: dict[str, dict]) -> dict[str, dict]:
    slots = {name: slot for name, slot in private["slots"].items() if name not in WRITTEN_BY_ALL}
    return {**private, "slots": slots}
