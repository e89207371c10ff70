"""FedRS (Li and Zhan, KDD 2021; restated in Li et al., TKDE 2024): restricted softmax in training alone."""

import math

import pytest
import torch
import torch.nn.functional as F

HEAD = "units.2.linear.weight"
MISSING, OBSERVED = [2, 3], [0, 1]  # classes of client 0
EVERYTHING = 1000


def scales(counts, alpha, rule):
    return {
        "paper": torch.tensor([1.0 if c >= 1 else alpha for c in counts], dtype=torch.float64),
        "freq_max": alpha + (1 - alpha) * counts / counts.max(),
        "freq": counts / counts.sum(),
        "uniform": torch.full_like(counts, alpha),
    }[rule]


def alone(lab, method, **settings):
    """Client 0, one full batch, one round, no momentum."""
    settings = {"batch_size": EVERYTHING, "rounds": 1, "momentum": 0.0, **settings}
    return lab.run(method, federation=lab.federation((9,)), **settings)


@pytest.mark.parametrize("alpha", [0.25, 0.9])
def test_gradient_of_a_missing_row_is_alpha_times_the_sum_of_p_h(lab, plain, alpha):
    fedrs = alone(lab, f"fedrs(alpha={alpha})")
    check, (before, after) = plain(fedrs), fedrs.params
    x, _ = check.rows(0, "train")
    h, z = check.forward(before, x)
    p = torch.softmax(z * torch.tensor([1, 1, alpha, alpha], dtype=torch.float64), 1)
    expected = alpha * (p.T @ h) / len(x)  # [K, d], a mean over the batch
    lab.close(((before[HEAD] - after[HEAD]) / 0.125)[MISSING], expected[MISSING], rtol=1e-8)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_rows_of_missing_classes_stay_exactly_as_they_are_at_alpha_zero(lab, engine):
    fedrs = lab.run("fedrs(alpha=0)", federation=lab.federation((9,)), local_epochs=3, engine=engine)
    first, last = fedrs.params[0][HEAD], fedrs.params[3][HEAD]
    lab.same(last[MISSING], first[MISSING])
    assert lab.differ(last[OBSERVED], first[OBSERVED])


def test_weight_decay_moves_the_rows_of_missing_classes(lab):
    fedrs = alone(lab, "fedrs(alpha=0)", weight_decay=0.01)
    first, last = fedrs.params[0][HEAD], fedrs.params[1][HEAD]
    lab.close(last[MISSING], (1 - 0.125 * 0.01) * first[MISSING])


def test_loss_at_alpha_zero_is_not_that_of_a_masked_softmax(lab, plain):
    """Every missing class still adds exp(0) = 1 to the denominator."""
    fedrs = alone(lab, "fedrs(alpha=0)")
    check = plain(fedrs)
    x, y = check.rows(0, "train")
    z = check.forward(fedrs.params[0], x)[1][:, OBSERVED]
    masked = F.cross_entropy(z, y)
    own = z[torch.arange(len(y)), y]
    restricted = (torch.log(z.exp().sum(1) + len(MISSING)) - own).mean()
    assert fedrs.simulation.latest["loss"] == pytest.approx(float(restricted), rel=1e-9)
    assert float(restricted - masked) > 0.1


def test_frequency_rule_is_exactly_the_paper_rule_for_equal_counts(lab):
    """Eight samples: four of each observed class."""
    federation = lab.federation((8,))
    assert federation.class_counts()[0].tolist() == [4, 4, 0, 0]
    a = lab.run("fedrs(alpha=0.5, rule=paper)", federation=federation)
    b = lab.run("fedrs(alpha=0.5, rule=freq_max)", federation=federation)
    lab.same(a.params, b.params)


def test_frequency_rule_differs_from_the_paper_rule_for_unequal_counts(lab):
    federation = lab.federation((9,))
    a = lab.run("fedrs(alpha=0.5, rule=paper)", federation=federation)
    b = lab.run("fedrs(alpha=0.5, rule=freq_max)", federation=federation)
    assert lab.differ(a.params[1], b.params[1])


@pytest.mark.parametrize("rule", ["paper", "freq_max", "freq", "uniform"])
def test_evaluation_uses_unscaled_logits(lab, plain, rule):
    fedrs = lab.run(f"fedrs(alpha=0.1, rule={rule})")
    check = plain(fedrs)
    for client, found in enumerate(fedrs.logits()):
        x, _ = check.rows(client, "test")
        lab.close(found["global"], check.forward(fedrs.params[3], x)[1])


def test_complete_rule_on_balanced_data_is_a_temperature_and_not_the_ordinary_softmax(lab, plain):
    """a_c = 1/K for every class (Li et al., TKDE 2024, section 5.4)."""
    federation = lab.federation((8,), held=[(0, 1, 2, 3)])
    settings = {"federation": federation, "batch_size": EVERYTHING, "rounds": 1}
    freq = lab.run("fedrs(rule=freq)", **settings)
    check = plain(freq)
    x, y = check.rows(0, "train")
    expected = F.cross_entropy(check.forward(freq.params[0], x)[1] / 4, y)
    assert freq.simulation.latest["loss"] == pytest.approx(float(expected), rel=1e-9)
    lab.same(lab.run("fedrs(rule=freq_max)", **settings).params, lab.run("fedavg", **settings).params)


def test_class_below_the_minimal_count_counts_as_missing(lab):
    """Client 0 holds nine samples: five of one class and four of another."""
    federation = lab.federation((9,))
    counts = federation.class_counts()[0]
    assert sorted(counts.tolist()) == [0, 0, 4, 5]
    rare = int(torch.tensor(counts).argsort()[2])
    fedrs = lab.run("fedrs(alpha=0, min_count=5)", federation=federation)
    lab.same(fedrs.params[3][HEAD][rare], fedrs.params[0][HEAD][rare])
    kept = lab.run("fedrs(alpha=0, min_count=4)", federation=federation)
    assert lab.differ(kept.params[3][HEAD][rare], kept.params[0][HEAD][rare])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("alpha", [0.25, 0.9])
@pytest.mark.parametrize("rule", ["paper", "freq_max", "freq", "uniform"])
def test_reference_of_three_rounds_agrees(lab, plain, rule, alpha, engine):
    fedrs = lab.run(
        f"fedrs(alpha={alpha}, rule={rule})",
        participation_rate=0.6,
        local_epochs=2,
        weight_decay=0.01,
        engine=engine,
    )
    check = plain(fedrs)

    def local(w, client, t):
        scale = scales(check.counts(client), alpha, rule)

        def loss(v, x, y):
            return F.cross_entropy(check.forward(v, x)[1] * scale, y)

        return check.sgd(w, check.batches(client, t, check.steps(client, 2)), loss)

    path = check.federated(fedrs.params[0], local)
    lab.close(fedrs.params, path)
    assert all(math.isfinite(float(leaf.sum())) for leaf in path[-1].values())
