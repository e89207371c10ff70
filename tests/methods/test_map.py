"""MAP (Li et al., IEEE TKDE 2024): the private stage cannot be felt by the shared model, and its reductions."""

import pytest
import torch

PART = "inherited_model"
OPTIONS = [
    "",
    ", transfer_weight=0",
    ", transfer_weight=1, transfer=kd, temperature=1",
    ", transfer_weight=0.5, transfer=mmd, momentum=0",
    ", transfer_weight=0.5, transfer=l2, momentum=1, schedule=mu_b",
    ", transfer_weight=0.5, transfer=prox, schedule=mu_c, hpm_init=theta0",
    ", kd_form=teacher_only, hpm_statistics=recompute, private_lr_scale=0.2, private_min_steps=5",
    ", private_share=0",
]


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("options", OPTIONS)
def test_shared_path_is_exactly_fedrs_whatever_the_private_stage(lab, options, engine):
    settings = {"engine": engine, "participation_rate": 0.6, "weight_decay": 0.01}
    fedrs = lab.run("fedrs(alpha=0.5)", local_epochs=1.5, **settings)
    map_ = lab.run(f"map(alpha=0.5{options})", local_epochs=3, **settings)
    lab.same(map_.params, fedrs.params)
    assert lab.differ(fedrs.params[3], fedrs.params[0])


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_shared_path_is_exactly_fedrs_of_half_the_epochs(lab, epochs, net, engine):
    settings = {"engine": engine, "net": net, "participation_rate": 0.6, "weighting": "samples"}
    fedrs = lab.run("fedrs(alpha=0.5)", local_epochs=epochs / 2, **settings)
    map_ = lab.run("map(alpha=0.5, transfer_weight=0.3)", local_epochs=epochs, **settings)
    for a, b in zip(map_.servers, fedrs.servers, strict=True):
        lab.same(a["params"], b["params"])
        lab.same(a["buffers"], b["buffers"])


def test_shared_path_in_single_precision_is_exactly_fedrs(lab):
    fedrs = lab.run("fedrs(alpha=0.9)", local_epochs=1, precision="float32")
    map_ = lab.run("map(alpha=0.9)", local_epochs=2, precision="float32")
    lab.same(map_.params, fedrs.params)


@pytest.mark.parametrize(("rounding", "shared", "private"), [("ceil", 2, 1), ("floor", 1, 2)])
def test_odd_step_goes_where_the_rounding_says(lab, rounding, shared, private):
    """Three batches in one epoch: 1.5 steps for each half."""
    simulation = lab.start(f"map(rounding={rounding})", local_epochs=1)
    setting = simulation.setting
    program = setting.program(0)
    plan = setting.method.plan(program.scene, program.clock)
    assert setting.work.steps(program, plan.before[0], 0) == shared
    assert setting.work.steps(program, plan.after[0], 0) == private


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_unrestricted_map_shares_exactly_fedavg_of_the_first_stage(lab, engine):
    fedavg = lab.run("fedavg", local_epochs=1, engine=engine)
    map_ = lab.run("map(alpha=1)", local_epochs=2, engine=engine)
    lab.same(map_.params, fedavg.params)


def test_inherited_model_without_private_steps_averages_the_uploads(lab):
    """With one client the upload is the next shared model: HPM <- (1 - mu_z) upload + mu_z HPM, mu_z = mu z/T."""
    map_ = lab.run("map(private_share=0, momentum=0.9)", federation=lab.federation((9,)), rounds=4)
    hpm = None
    for z in range(4):
        upload, mu = map_.params[z + 1], 0.9 * z / 4
        hpm = upload if hpm is None else {n: (1 - mu) * upload[n] + mu * hpm[n] for n in upload}
        lab.close(map_.slot(PART, 0, z + 1)["params"], hpm)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
def test_private_model_without_transfer_and_momentum_is_a_local_update_of_the_upload(lab, plain, engine):
    map_ = lab.run("map(alpha=0.5, transfer_weight=0, momentum=0)", local_epochs=2, rounds=2, engine=engine)
    check = plain(map_)
    for client in range(5):
        steps = check.steps(client, 1)
        scale = torch.where(check.counts(client) >= 1, 1.0, 0.5)

        def restricted(w, x, y, scale=scale):
            return torch.nn.functional.cross_entropy(check.forward(w, x)[1] * scale, y)

        upload = check.sgd(map_.params[1], check.batches(client, 1, steps), restricted)
        tuned = check.sgd(upload, check.batches(client, 1, steps, "private"), check.cross_entropy)
        lab.close(map_.slot(PART, client, 2)["params"], tuned)


@pytest.mark.parametrize("engine", ["loop", "cohort"])
@pytest.mark.parametrize("net", ["mlp", "bn"])
def test_map_without_restriction_and_private_stage_is_exactly_fedphp_without_transfer(lab, net, engine):
    settings = {"net": net, "engine": engine, "participation_rate": 0.6, "rounds": 4}
    map_ = lab.run("map(alpha=1, shared_share=1, private_share=0)", **settings)
    fedphp = lab.run("fedphp(transfer_weight=0)", **settings)
    lab.same(map_.params, fedphp.params)
    for t in range(5):
        for client in range(5):
            lab.same(map_.slot(PART, client, t), fedphp.slot("inherited_teacher", client, t))


def test_private_stage_trains_with_unscaled_logits(lab):
    """alpha = 0 would leave the rows of missing classes at zero gradient; the private stage moves them."""
    map_ = lab.run("map(alpha=0, transfer_weight=0, momentum=0)", local_epochs=2, rounds=1)
    head, missing = "units.2.linear.weight", [2, 3]  # client 0 holds classes 0 and 1
    hpm = map_.slot(PART, 0, 1)["params"][head][missing]
    assert lab.differ(hpm, map_.params[0][head][missing])


@pytest.mark.parametrize("transfer", ["kd", "mmd", "l2", "prox"])
def test_first_selection_of_map_sees_no_transfer(lab, transfer):
    def first(weight):
        return lab.run(f"map(transfer={transfer}, transfer_weight={weight})", rounds=2, local_epochs=2)

    a, b = first(0), first(0.5)
    for client in range(5):
        lab.same(a.slot(PART, client, 1), b.slot(PART, client, 1))
    assert lab.differ(a.slot(PART, 2, 2)["params"], b.slot(PART, 2, 2)["params"])


def test_official_preset_recomputes_the_statistics_of_the_inherited_model(lab):
    """Reset and cumulative average over the training split: one batch holds a whole client here."""
    map_ = lab.run("map(preset=official)", net="bn", rounds=2, federation=lab.federation((9, 6)))
    hpm = map_.slot(PART, 0, 2)
    setting = map_.simulation.setting
    x = torch.from_numpy(setting.federation.x[setting.federation.clients[0].train])
    conv = torch.nn.functional.conv2d(
        x, hpm["params"]["units.0.convolution.weight"], hpm["params"]["units.0.convolution.bias"], padding=1
    )
    lab.close(hpm["buffers"]["units.0.normalisation.running_mean"], conv.mean((0, 2, 3)))
    lab.close(hpm["buffers"]["units.0.normalisation.running_var"], conv.var((0, 2, 3)))
