"""PersFL (Divi, Farrukh, Celik 2021): optimal teachers, distillation, choices on validation data."""

import pytest
import torch
import torch.nn.functional as F

PART = "optimal_teacher"
TRAINING = {"local_epochs": 2, "rounds": 4, "weight_decay": 0.01, "participation_rate": 0.6}


def student(trace, client):
    return trace.end[client]["slots"][PART]["student"]


def validation_loss(check, w, client):
    return float(check.cross_entropy(w, *check.rows(client, "valid")))


@pytest.mark.parametrize("method", ["persfl", "persfl_gd"])
@pytest.mark.parametrize("temperature", [1, 5, 25])
def test_student_that_only_imitates_stays_at_its_teacher(lab, temperature, method):
    trace = lab.run(f"{method}(lambdas=(1,), temperatures=({temperature},), epochs=4)", rounds=2)
    for client in range(5):
        teacher = trace.slot(PART, client, 2)["teacher"]["params"]
        torch.testing.assert_close(student(trace, client)["params"], teacher, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_cross_entropy_with_soft_labels_gives_the_same_students(lab, engine):
    grid = "lambdas=(0.25, 0.75), temperatures=(1, 5), epochs=3"
    kl = lab.run(f"persfl({grid})", engine=engine)
    gd = lab.run(f"persfl_gd({grid})", engine=engine)
    for client in range(5):
        lab.close(student(gd, client), student(kl, client))
        assert lab.differ(student(kl, client)["params"], kl.slot(PART, client, 3)["teacher"]["params"])


def test_mean_over_classes_too_gives_other_students(lab):
    grid = "lambdas=(0.5,), temperatures=(5,), epochs=3"
    kl, elements = lab.run(f"persfl({grid})"), lab.run(f"persfl({grid}, soft_loss=kl_elements)")
    assert lab.differ(student(kl, 2)["params"], student(elements, 2)["params"])


@pytest.mark.parametrize(("temperature", "lr_scale"), [(1, 1.0), (25, 1.0), (1, 0.4)])
def test_student_without_soft_loss_is_the_fine_tuned_teacher(lab, plain, temperature, lr_scale):
    options = f"lambdas=(0,), temperatures=({temperature},), epochs=2, lr_scale={lr_scale}"
    trace = lab.run(f"persfl({options})", **TRAINING)
    check = plain(trace)
    for client in range(5):
        teacher = trace.slot(PART, client, 4)["teacher"]["params"]
        batches = check.batches(client, 4, check.steps(client, 2), "distil")
        tuned = check.sgd(teacher, batches, check.cross_entropy, lr_scale)
        lab.close(student(trace, client)["params"], tuned)


@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_no_distillation_leaves_exactly_the_teacher(lab, net):
    trace = lab.run("persfl(epochs=0)", net=net)
    for client, found in enumerate(trace.logits()):
        teacher = trace.slot(PART, client, 3)["teacher"]
        lab.same({n: student(trace, client)[n] for n in teacher}, teacher)
        lab.same(found["companion"], found["teacher"])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_teacher_is_the_shared_model_with_the_least_validation_loss(lab, plain, engine):
    """Every client scores every new model, selected or not; the round it came from is recorded."""
    trace = lab.run("persfl(epochs=0)", rounds=6, participation_rate=0.4, local_epochs=4, engine=engine)
    check, rounds = plain(trace), []
    for client in range(5):
        losses = [validation_loss(check, w, client) for w in trace.params[1:]]
        slot = trace.slot(PART, client, 6)
        best = min(range(6), key=losses.__getitem__)
        assert float(slot["loss"]) == pytest.approx(losses[best], rel=1e-9)
        assert validation_loss(check, slot["teacher"]["params"], client) <= min(losses) + 1e-12
        lab.same(slot["teacher"]["params"], trace.params[best + 1])
        assert float(slot["round"]) == best + 1
        rounds.append(best + 1)
    assert len(set(rounds)) > 1
    recorded = trace.simulation.rows.table().to_pandas()
    recorded = recorded[recorded.metric == "teacher round"].sort_values("client")
    assert recorded.value.tolist() == rounds


def test_teacher_is_not_chosen_on_test_data(lab, plain):
    """The test above would not notice if both splits ranked the rounds alike."""
    trace = lab.run("persfl(epochs=0)", rounds=6, participation_rate=0.4, local_epochs=4)
    check = plain(trace)

    def best(client, split):
        losses = [float(check.cross_entropy(w, *check.rows(client, split))) for w in trace.params[1:]]
        return min(range(6), key=losses.__getitem__) + 1

    on_test = [best(client, "test") for client in range(5)]
    assert on_test != [int(trace.slot(PART, client, 6)["round"]) for client in range(5)]


def test_earliest_round_wins_ties(lab):
    trace = lab.run("persfl(epochs=0)", learning_rate=0.0, federation=lab.federation((9,)))
    assert float(trace.slot(PART, 0, 3)["round"]) == 1


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_one_round_makes_optimal_and_last_teacher_the_same(lab, engine):
    options = "lambdas=(0.5,), temperatures=(5,), epochs=2"
    settings = {"rounds": 1, "engine": engine}
    optimal = lab.run(f"persfl({options})", **settings)
    last = lab.run(f"persfl({options}, teacher=fedavg)", **settings)
    for client in range(5):
        lab.close(student(optimal, client), student(last, client))


def test_last_teacher_is_the_final_shared_model_for_all(lab):
    trace = lab.run("persfl(teacher=fedavg, epochs=0)", rounds=6, participation_rate=0.4, local_epochs=4)
    for client in range(5):
        lab.same(student(trace, client)["params"], trace.params[6])


def test_recorded_round_of_the_last_teacher_is_the_last(lab):
    trace = lab.run("persfl(teacher=fedavg, epochs=0)", rounds=6, participation_rate=0.4, local_epochs=4)
    recorded = trace.simulation.rows.table().to_pandas()
    assert set(recorded[recorded.metric == "teacher round"].value) == {6.0}


def test_ties_go_to_the_smaller_lambda_then_the_smaller_temperature(lab):
    """Without learning all students are the teacher, whatever the order in which the grid is written."""
    trace = lab.run("persfl(lambdas=(1, 0.5), temperatures=(25, 5), epochs=1, lr_scale=0)")
    for client in range(5):
        assert float(student(trace, client)["lambda"]) == 0.5
        assert float(student(trace, client)["temperature"]) == 5


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("method", ["persfl", "persfl_gd"])
def test_reference_of_both_stages_agrees(lab, plain, method, engine):
    """FedAvg, teachers by validation loss, one student for every grid point, the best on validation."""
    trace = lab.run(
        f"{method}(lambdas=(0.25, 0.5, 1), temperatures=(1, 4), epochs=5)", engine=engine, **TRAINING
    )
    grid = [(0.25, 1.0), (0.25, 4.0), (0.5, 1.0), (0.5, 4.0), (1.0, 1.0), (1.0, 4.0)]
    check = plain(trace)

    def local(w, client, t):
        return check.sgd(w, check.batches(client, t, check.steps(client, 2)), check.cross_entropy)

    path, picks = check.federated(trace.params[0], local), []
    lab.close(trace.params, path)
    for client in range(5):
        teacher = min(path[1:], key=lambda w, client=client: validation_loss(check, w, client))
        students = []
        for weight, tau in grid:

            def loss(w, x, y, weight=weight, tau=tau, teacher=teacher):
                z, g = check.forward(w, x)[1], check.forward(teacher, x)[1]
                p = torch.softmax(g / tau, 1)
                kl = (p * (p.log() - torch.log_softmax(z / tau, 1))).sum(1).mean()
                return (1 - weight) * F.cross_entropy(z, y) + weight * tau**2 * kl

            batches = check.batches(client, 4, check.steps(client, 5), "distil")
            students.append(check.sgd(teacher, batches, loss))
        x, y = check.rows(client, "valid")
        hits = [int((check.forward(w, x)[1].argmax(1) == y).sum()) for w in students]
        pick = hits.index(max(hits))
        picks.append(pick)
        found = student(trace, client)
        lab.close(found["params"], students[pick])
        assert (float(found["lambda"]), float(found["temperature"])) == grid[pick]
    assert len(set(picks)) > 1
