"""A user's mistake is one sentence on standard error, exit code 2, and nothing written."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.experiments import setting
from idiolect.federation.store import placement

BAD: dict[str, tuple[list[str], list[str]]] = {
    "near-method": (["--method", "fedpre"], ["unknown method 'fedpre'", "did you mean fedrep or fedper"]),
    "far-method": (["--method", "zzz"], ["unknown method 'zzz'; `idiolect methods` lists the "]),
    "methods-with-comma": (
        ["--method", "fedper,ditto"],
        ["--method takes one method", "idiolect compare --methods"],
    ),
    "method-option": (["--method", "map(alfa=1)"], ["map has no option 'alfa'", "alpha, rule, min_count"]),
    "part-option": (["--method", "fedavg + proximal(mu=1)"], ["proximal has no option 'mu'", "weight"]),
    "preset": (["--method", "map(preset=none)"], ["no preset 'none'", "paper, official, complete"]),
    "alpha-high": (["--method", "map(alpha=2)"], ["alpha must be in [0, 1], got 2"]),
    "alpha-low": (["--method", "fedrs(alpha=-0.1)"], ["alpha must be in [0, 1], got -0.1"]),
    "word-for-float": (["--method", "map(alpha=high)"], ["map: option alpha must be float, got 'high'"]),
    "float-for-int": (["--method", "map(min_count=1.5)"], ["option min_count must be int, got 1.5"]),
    "flag-for-int": (["--method", "fedper(count=True)"], ["option count must be int, got True"]),
    "number-for-tuple": (["--method", "persfl(lambdas=0.5)"], ["lambdas must be tuple[float, ...], got 0.5"]),
    "choice": (["--method", "fedphp(schedule=mu_z)"], ["schedule", "mu_a", "got 'mu_z'"]),
    "empty-grid": (["--method", "persfl(lambdas=())"], ["lambdas and temperatures need at least one value"]),
    "k-p": (["--method", "fedper(count=99)"], ["count (K_P) is 99", "the network has 3 units", "0 to 3"]),
    "open-bracket": (["--method", "map(alpha=0.5"], ["cannot read 'map(alpha=0.5'"]),
    "empty-method": (["--method", ""], ["cannot read the method ''"]),
    "lone-plus": (["--method", "fedavg +"], ["cannot read the method 'fedavg +'"]),
    "nameless-option": (["--method", "map(0.5)"], ["has an option without a name", "map(key=value"]),
    "two-logit-maps": (
        ["--method", "map + restricted_softmax(alpha=0.5)"],
        ["both bring the part restricted_softmax"],
    ),
    "two-inherited": (
        ["--method", "fedphp + inherited_model()"],
        ["(inherited_teacher) and inherited_model"],
    ),
    "methods-map-fedrod": (["--method", "map + fedrod"], ["cannot be combined", "inherited_model + fedrod"]),
    "methods-fedphp-map": (
        ["--method", "fedphp + map"],
        ["cannot be combined", "fedphp + restricted_softmax"],
    ),
    "clients-over-rows": (["--partition", "iid", "--clients", "81"], ["n_clients=81", "from 1 to 80"]),
    "clients-over-ids": (["--clients", "5"], ["by_id: n_clients=5", "from 1 to 4 (the number of ids;"]),
    "client-too-small": (["--partition", "iid", "--clients", "40"], ["client 0 holds 2 samples, too few"]),
    "dataset": (["--dataset", "mnst"], ["unknown dataset 'mnst'; did you mean mnist"]),
    "dataset-option": (["--dataset", "synthetic(skw=1)"], ["has no option 'skw'", "skew"]),
    "dataset-value": (["--dataset", "synthetic(skew=-1)"], ["skew must be a number of at least 0, not -1"]),
    "partition": (["--partition", "idd"], ["unknown partition 'idd'; did you mean iid?"]),
    "partition-option": (["--partition", "label_k(j=2)"], ["label_k has no option 'j'", "k=5"]),
    "partition-value": (["--partition", "label_k(k=11)"], ["k=11 must be a whole number from 1 to 3"]),
    "partition-without-ids": (["--dataset", "fashion-mnist-12k"], ["by_id: this data has no ids"]),
    "model": (["--model", "mlpnt"], ["unknown model 'mlpnt'; did you mean mlpnet"]),
    "model-option": (["--model", "mlpnet(width=3)"], ["model mlpnet has no option 'width'", "hidden"]),
    "model-misfit": (["--model", "vgg8"], ["model vgg8 cannot take images of 1x8"]),
    "engine": (["--engine", "lop"], ["unknown engine 'lop'; did you mean loop?"]),
    "device": (["--device", "gpu"], ["device must be one of auto, cpu, cuda; got 'gpu'"]),
    "precision": (
        ["--precision", "float16"],
        ["precision must be one of float32, float64, tf32, bf16; got 'float16'"],
    ),
    "setting": (["--set", "rouns=3"], ["there is no setting 'rouns'; known: ", "participation_rate"]),
    "set-without-value": (["--set", "rounds"], ["--set 'rounds' has no value; write --set key=value"]),
    "set-fill": (["--set", "fill=mean"], ["--set does not take fill; use --fill"]),
    "set-engine": (["--set", "engine=loop"], ["--set does not take engine; use --engine"]),
    "set-word-for-int": (["--set", "batch_size=abc"], ["setting batch_size must be int, got 'abc'"]),
    "set-float-for-int": (["--set", "batch_size=1.5"], ["setting batch_size must be int, got 1.5"]),
    "set-number-for-word": (["--set", "weighting=1"], ["setting weighting must be str, got 1"]),
    "rounds": (["--rounds", "0"], ["rounds must be at least 1, got 0"]),
    "rate-zero": (["--set", "participation_rate=0"], ["participation_rate must be", "got 0"]),
    "rate-two": (["--set", "participation_rate=2"], ["participation_rate must be", "at most 1", "got 2"]),
    "learning-rate": (["--set", "learning_rate=-1"], ["learning_rate must be at least 0, got -1"]),
    "momentum": (["--set", "momentum=2"], ["momentum must be in [0, 1], got 2"]),
    "weighting": (["--set", "weighting=all"], ["weighting must be one of uniform, samples; got 'all'"]),
    "buffers": (["--set", "buffers=none"], ["buffers must be one of average, private, frozen"]),
    "initialisation": (["--set", "initialisation=zzz"], ["unknown initialisation 'zzz'; known: default"]),
    "seed": (["--seed", "-1"], ["seed must be in [0, "]),
    "no-room": (["--set", "valid=0.5", "--set", "test=0.5"], ["valid=0.5 and test=0.5", "room for training"]),
    "negative-split": (["--set", "valid=-0.5"], ["valid=-0.5", "must be at least 0"]),
    "persfl-unvalidated": (
        ["--method", "persfl", "--set", "valid=0"],
        ["persfl chooses on validation data and client 0 holds none; set valid above 0"],
    ),
    "workers-absurd": (
        ["--engine", "pool", "--workers", f"1{'0' * 23}"],
        ["workers must be in [1, ", "got 1e+23"],
    ),
    "jobs-absurd": (["--jobs", f"1{'0' * 23}"], ["jobs must be in [1, 1024], got 1e+23"]),
    "rounds-absurd": (["--rounds", f"1{'0' * 23}"], ["rounds must be at most 1e+09, got 1e+23"]),
    "batch-absurd": (
        ["--set", f"batch_size=1{'0' * 400}"],
        ["batch_size must be at most 1e+09, got a larger number"],
    ),
    "clients-absurd": (["--clients", f"1{'0' * 23}"], ["clients must be at most 1e+09, got 1e+23"]),
    "minus-method": (["--method", f"map(alpha={'-' * 20000}1)"], ["cannot read 'map(alpha=---", "---1)'"]),
    "minus-setting": (
        ["--set", f"learning_rate={'-' * 20000}1"],
        ["setting learning_rate must be float, got '---"],
    ),
    "minus-model": (["--model", f"mlpnet(hidden={'-' * 20000}1)"], ["cannot read 'mlpnet(hidden=---"]),
    "brackets-setting": (["--set", f"batch_size={'(' * 9000}"], ["setting batch_size must be int, got '((("]),
    "table-setting": (["--set", "batch_size={[]: 1}"], ["setting batch_size must be int, got '{[]: 1}'"]),
    "diverged": (
        ["--set", "learning_rate=1e30"],
        ["client 0 ", "not finite in round 1; lower learning_rate"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case, idiolect, refused, small, tmp_path):
    words, pieces = BAD[case]
    method = () if "--method" in words else ("--method", "fedavg")
    answer = idiolect("run", *method, *small, *words, "--out", tmp_path / "out")
    refused(answer, *pieces)
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("case", ["near-method", "diverged"])
def test_bad_input_of_real_command_leaves_no_traceback(case, command, refused, small, tmp_path):
    words, pieces = BAD[case]
    method = () if "--method" in words else ("--method", "fedavg")
    answer = command("run", *method, *small, *words, "--out", tmp_path / "out")
    refused(answer, *pieces)
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["--rounds", "abc"], "'abc' is not a valid integer"),
        (["--seed", "x"], "'x' is not a valid integer"),
        (["--bogus"], "No such option"),
    ],
)
def test_flag_of_wrong_kind_is_refused_by_name(words, piece, idiolect, tmp_path):
    answer = idiolect("run", "--method", "fedavg", *words, "--out", tmp_path / "out")
    assert answer.code == 2 and answer.out == ""
    assert piece in answer.err and words[0] in answer.err
    assert not (tmp_path / "out").exists()


def test_unknown_command_is_refused(idiolect):
    answer = idiolect("rnu")
    assert answer.code == 2
    assert "No such command 'rnu'" in answer.err
    assert answer.err.count("Did you mean") == 1


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["--methods", "fedavg,fedpre"], "unknown method 'fedpre'; did you mean fedrep or fedper"),
        (["--methods", ","], "--methods ',' names no method"),
        (["--methods", ""], "--methods '' names no method"),
        (
            ["--preset", "official", "--methods", "fedavg"],
            "--preset official is of a scenario; give --scenario",
        ),
        (["--methods", "fedavg,map(alpha=3)"], "alpha must be in [0, 1], got 3"),
        (["--methods", "fedavg,fedper(count=9)"], "the network has 3 units"),
        (["--methods", "fedavg", "--seed", "-1"], "seed must be in [0, "),
    ],
)
def test_bad_comparison_is_refused_before_its_first_run(words, piece, idiolect, refused, small, tmp_path):
    refused(idiolect("compare", *small, *words, "--out", tmp_path / "out"), piece)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words", [["run"], ["compare", "--seed", "1"], ["sweep"], ["deploy", "init"]], ids=" ".join
)
@pytest.mark.parametrize("option", ["--learning-rate", "--learning-rate=-1", "--learning_rate"])
def test_setting_written_as_an_option_is_refused_with_set(words, option, idiolect):
    answer = idiolect(*words, option, "-1")
    assert answer.code == 2
    assert "--set learning_rate=VALUE" in " ".join(answer.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "words", [["run", "--lerning"], ["compare", "--method"], ["report", "--learning-rate"]]
)
def test_option_that_is_no_setting_of_the_command_is_refused_without_set(words, idiolect):
    answer = idiolect(*words, "1")
    assert answer.code == 2
    assert f"No such option '{words[1]}'" in answer.err and "=VALUE" not in answer.err


@pytest.mark.parametrize("words", [["methods", "fedpre"], ["datasets", "get", "mnst"]])
def test_unknown_name_in_a_listing_is_refused_with_near_matches(words, idiolect, refused):
    refused(idiolect(*words), "did you mean")


# ---- datasets


def _run_on(folder: Path, idiolect, tmp_path: Path):
    flags = ("--dataset", "mnist", "--data-dir", folder.parent, "--partition", "iid", "--clients", "2")
    more = ("--model", "mlpnet(hidden=8)", "--rounds", "1", "--engine", "loop", "--out", tmp_path / "out")
    return idiolect("run", "--method", "fedavg", *flags, *more)


def test_whole_dataset_file_is_read(idiolect, mnist, tmp_path):
    assert _run_on(mnist, idiolect, tmp_path).code == 0


def test_truncated_dataset_file_is_refused_by_name(idiolect, refused, mnist, tmp_path):
    path = mnist / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-100])
    before = path.read_bytes()
    refused(_run_on(mnist, idiolect, tmp_path), str(path), "bytes, but it has", "idiolect datasets get mnist")
    assert path.read_bytes() == before
    assert not (tmp_path / "out").exists()


def test_wrong_dataset_file_is_refused_by_name(idiolect, refused, mnist, tmp_path):
    path = mnist / "train-images-idx3-ubyte"
    path.write_bytes((mnist / "train-labels-idx1-ubyte").read_bytes())
    refused(_run_on(mnist, idiolect, tmp_path), str(path), "1 dimensions, expected 3", "datasets get mnist")
    assert not (tmp_path / "out").exists()


def test_web_page_in_place_of_a_dataset_file_is_refused_by_name(idiolect, refused, mnist, tmp_path):
    path = mnist / "t10k-labels-idx1-ubyte"
    path.write_text("<html>not found</html>")
    refused(_run_on(mnist, idiolect, tmp_path), str(path), "is not an idx file")


def test_missing_dataset_says_where_it_looked_and_how_to_get_it(idiolect, refused, tmp_path):
    nowhere = tmp_path / "nowhere"
    answer = _run_on(nowhere / "mnist", idiolect, tmp_path)
    refused(answer, f"in {nowhere / 'mnist'};", f"`idiolect datasets get mnist --data-dir {nowhere}`")
    assert not nowhere.exists() and not (tmp_path / "out").exists()


# ---- clients that cannot be served


def test_client_without_data_is_refused_by_number(idiolect, refused, small, tmp_path, monkeypatch):
    empty = SimpleNamespace(clients=(np.arange(80), np.arange(0)))
    monkeypatch.setattr(setting, "partition", lambda *args, **options: empty)
    answer = idiolect("run", "--method", "fedavg", *small, "--out", tmp_path / "out")
    refused(answer, "client 1 has no data; use fewer clients or another partition")
    assert not (tmp_path / "out").exists()


NORMALISED = ("--method", "fedavg", "--dataset", "fashion-mnist-12k", "--model", "lenet_bn")


@pytest.mark.parametrize(
    "words",
    [
        ("--partition", "iid", "--clients", "10", "--set", "batch_size=1"),
        ("--partition", "iid", "--clients", "5000", "--set", "valid=0"),
    ],
    ids=["batch-of-one", "client-of-one"],
)
def test_batch_normalisation_of_one_sample_is_refused_by_client(words, idiolect, refused, tmp_path):
    answer = idiolect("run", *NORMALISED, *words, "--engine", "loop", "--out", tmp_path / "out")
    refused(answer, "client 0 would train on batches of one sample, which batch normalisation cannot")
    assert not (tmp_path / "out").exists()


# ---- folders


def test_out_that_is_a_file_is_refused_and_kept(idiolect, refused, small, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    refused(idiolect("run", "--method", "fedavg", *small, "--out", path), "cannot make the folder", str(path))
    assert path.read_text() == "mine"


def test_out_that_cannot_be_made_is_refused_by_the_words_of_the_system(
    idiolect, refused, small, tmp_path, monkeypatch
):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(placement, "free_disk", lambda folder: 0)
    words = ("run", "--method", "fedper", *small, "--out", tmp_path / "out")
    refused(idiolect(*words), "of disk", "free (0 bytes)")
    monkeypatch.setattr(placement, "TemporaryDirectory", refuse)
    refused(
        idiolect(*words), "cannot make the folder", str(tmp_path / "out"), "(Read-only file system)", "--out"
    )
    assert not (tmp_path / "out").exists()


# ---- values that look harmless


def test_setting_in_scientific_notation_is_read_as_a_number(idiolect, small, tmp_path):
    answer = idiolect(
        "run", "--method", "fedavg", *small, "--set", "learning_rate=1e-3", "--out", tmp_path / "out"
    )
    assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "learning_rate=1e400"],
        ["--set", "local_epochs=1e400"],
        ["--set", "seed=100000000000000000000000"],
        ["--set", "method=fedper"],
        ["--method", "persfl(epochs=1e400)"],
    ],
    ids=" ".join,
)
def test_odd_value_is_refused_in_one_sentence(words, idiolect, refused, small, tmp_path):
    method = () if "--method" in words else ("--method", "fedavg")
    refused(idiolect("run", *method, *small, *words, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--method", "map(private_lr_scale=-1)"],
        ["compare", "--methods", "fedavg", "--set", "seed=3"],
        ["compare", "--methods", "fedavg", "--set", "method=local"],
    ],
    ids=" ".join,
)
def test_value_without_meaning_is_refused(words, idiolect, refused, small, tmp_path):
    refused(idiolect(*words, *small, "--out", tmp_path / "out"))


@pytest.mark.parametrize("words", [["run"], ["run", "--method", "fedavg"], ["sweep", "--methods", "fedavg"]])
def test_preset_without_a_scenario_is_refused(words, idiolect, refused, tmp_path):
    answer = idiolect(*words, "--preset", "paper", "--out", tmp_path / "out")
    refused(answer, "--preset paper is of a scenario; give --scenario NAME too")


def test_method_given_twice_is_refused_before_its_first_run(idiolect, refused, small, tmp_path):
    refused(idiolect("compare", "--methods", "fedavg,fedavg", *small, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_choosing_method_without_test_data_is_refused_by_setting(idiolect, refused, small, tmp_path):
    words = ("--method", "superfed_mm", "--set", "test=0")
    refused(idiolect("run", *small, *words, "--out", tmp_path / "out"), "test")


def test_plus_inside_a_number_is_no_composition(idiolect, small, tmp_path):
    answer = idiolect("run", "--method", "fedprox(weight=1e+0)", *small, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err


def test_folder_with_square_brackets_is_printed_whole(idiolect, small, tmp_path):
    answer = idiolect("run", "--method", "fedavg", *small, "--out", tmp_path / "a [draft]")
    assert "a [draft]" in answer.out


@pytest.mark.parametrize("text", ["map + fedrod", "fedphp + map"])
def test_conflicting_methods_are_named(text, idiolect, refused, small, tmp_path):
    answer = idiolect("run", "--method", text, *small, "--out", tmp_path / "out")
    refused(answer, *text.split(" + "))
