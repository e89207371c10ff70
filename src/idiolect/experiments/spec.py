"""The experiment: a frozen value that says everything that changes the numbers of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from idiolect.core import Scene
from idiolect.core.optimiser import local_optimiser
from idiolect.core.schedule import local_schedule
from idiolect.engines import AUGMENTATIONS
from idiolect.errors import UserError, near_names, refuse_outside, refuse_unknown_choice
from idiolect.experiments.rounds.schedules import rate_factor
from idiolect.federation import SELECTIONS, canonical_under
from idiolect.option_parsing import is_of_kind

__all__ = ["NEUTRAL", "PRECISIONS", "Experiment", "unknown_setting", "with_settings"]

PRECISIONS = ("float32", "float64", "tf32", "bf16")


@dataclass(frozen=True)
class Experiment:
    """One method on one federation with one seed.

    Args:
        method: a name, a name with options, or a composition: ``map(alpha=0.5)``.
        dataset: a dataset, with options as in ``synthetic(skew=0.5)``.
        partition: how samples are shared out among clients, such as ``label_k(k=2)``.
        clients: number of clients; 0 takes as many as the data have (partition ``natural``).
        newcomers: number of clients, drawn by the seed and numbered last, who never train; after the last round each
            joins by the method's own rule and is scored as the population ``new``.
        model: a network, with options as in ``mlpnet(hidden=64)``.
        initialisation: a scheme for the network's first values; ``default`` is the network's own.
        rounds: communication rounds.
        participation_rate: share of the clients that train in a round, above 0 and at most 1.
        selection: of the clients that train in a round: ``fixed`` draws equally many in every round, without
            replacement; ``poisson`` draws each by itself with the probability ``participation_rate``.
        local_epochs: passes over its training samples that a selected client makes in a round.
        batch_size: samples of a local step.
        learning_rate: of the local steps.
        min_local_steps: least number of local steps in a round, however few samples a client has.
        pool: what the partition shares out: ``train``, the dataset's training part, or ``train_and_test``, both parts
            together (PersFL); the server's test set is then that of all clients together.
        client_test: where a client's test samples come from: ``split`` holds the share ``test`` of its own out;
            ``official`` shares the official test set out by the classes that the clients train on (FedPer), the
            server's test set staying the official one, and needs ``test`` to be 0.  No sample is ever in training and
            in a test set.
        valid, test: shares of each client's samples held out.
        public: number of samples of the server's test set that the server may train on without their labels; they
            leave the test set unless ``public_in_test``.
        public_in_test: public samples stay in the server's test set.
        weighting: of the clients in the server's mean: ``uniform`` or ``samples``.
        buffers: running statistics are ``average``d, kept ``private`` or left ``frozen``.
        optimiser: of the clients' local steps: ``sgd``, ``adam`` or ``adamw``, with options as in
            ``adam(beta_one=0.9, beta_two=0.999, epsilon=1e-8)``; the memory starts anew in every stage.  A method whose
            mathematics need steps of its own keeps them, as its card says, or is refused.
        momentum: of ``sgd``; the others do not read it.
        weight_decay: added to the gradient by ``sgd`` and ``adam``, decoupled from it by ``adamw``.
        clip_norm: the largest norm of a gradient, before weight decay enters; None is off.
        warmup_rounds: number of rounds over which the learning rate grows linearly.
        lr_decay: factor on the learning rate after every round.
        schedule: a further factor over the rounds after the warm-up: ``constant``, ``cosine(final=0.0)``,
            ``linear(final=0.0)`` or ``step(every=10, factor=0.1)``; ``final`` is reached after the last round.
        local_schedule: of the learning rate over the steps of a stage, each client by its own number of steps:
            ``constant``, ``cosine(final=0.0)`` or ``linear(final=0.0)``, from the round's rate to ``final`` times it.
        augmentation: ``crop_flip`` trains on images moved by up to four pixels and mirrored at random; measuring
            and evaluating always see them as they are.
        evaluate_every: rounds between evaluations of all clients; the last round is always evaluated.
        observe: when the selected clients are scored before and after their training: in ``evaluated`` rounds, or
            ``always``, which local degradation and the mean over the last rounds need.
        calibration: ``whole`` measures calibration on each client's whole split; ``per_batch`` also records it averaged
            over batches of ``batch_size``, as SuPerFed's code does, under names of its own.
        metrics: names, separated by commas, of metrics to record beside those of the task, such as ``auroc`` or one of
            your own that was registered.
        score_valid: evaluations score the validation split too, as sweeps need it.
        precision: number format: ``float32``, ``float64``, ``tf32`` (float32 whose products a GPU may round) or
            ``bf16`` (networks compute in bfloat16, all else is float32).
        under: disturbances under which the run is made, such as ``label_noise(share=0.3)`` or ``dropout(rate=0.1)``;
            several act together, whatever their order; ``idiolect disturbances`` lists them.
        seed: of every random draw; without ``data_seed`` also of the clients' data.
        data_seed: of the partition, the splits and who are newcomers; None follows ``seed``.  Runs with one data seed
            and several seeds train the same clients again.
    """

    method: str = "fedavg"
    dataset: str = "fashion-mnist-12k"
    partition: str = "dirichlet_client(alpha=0.3)"
    clients: int = 50
    newcomers: int = 0
    model: str = "lenet_map"
    initialisation: str = "default"
    rounds: int = 40
    participation_rate: float = 0.4
    selection: str = "fixed"
    local_epochs: float = 2
    batch_size: int = 32
    learning_rate: float = 0.03
    optimiser: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None
    min_local_steps: int = 0
    warmup_rounds: int = 0
    lr_decay: float = 1.0
    schedule: str = "constant"
    local_schedule: str = "constant"
    weighting: str = "uniform"
    buffers: str = "average"
    pool: str = "train"
    client_test: str = "split"
    valid: float = 0.2
    test: float = 0.2
    public: int = 0
    public_in_test: bool = False
    evaluate_every: int = 5
    augmentation: str = "none"
    observe: str = "evaluated"
    calibration: str = "whole"
    metrics: str = ""
    score_valid: bool = False
    precision: str = "float32"
    under: tuple[str, ...] = ()
    seed: int = 0
    data_seed: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "under", canonical_under(self.under))  # one spelling, one run
        for name, low in LEAST.items():
            refuse_outside(name, getattr(self, name), low)
        if not 0 < self.participation_rate <= 1:
            raise UserError(
                f"participation_rate must be above 0 and at most 1, got {self.participation_rate:g}"
            )
        refuse_outside("momentum", self.momentum, 0, 1)
        if not 0 < self.lr_decay < float("inf"):
            raise UserError(f"lr_decay must be above 0, got {self.lr_decay:g}")
        refuse_outside("seed", self.seed, 0, 2**63 - 1)
        refuse_outside("data_seed", self.seed_of_data, 0, 2**63 - 1)
        local_optimiser(self.optimiser, self.momentum, self.weight_decay, self.clip_norm)
        local_schedule(self.local_schedule)
        self.learning_rate_at(0)
        self._check_test_data()
        refuse_unknown_choice("selection", self.selection, SELECTIONS)
        refuse_unknown_choice("weighting", self.weighting, ("uniform", "samples"))
        refuse_unknown_choice("buffers", self.buffers, ("average", "private", "frozen"))
        refuse_unknown_choice("augmentation", self.augmentation, AUGMENTATIONS)
        refuse_unknown_choice("observe", self.observe, ("evaluated", "always"))
        refuse_unknown_choice("calibration", self.calibration, ("whole", "per_batch"))
        refuse_unknown_choice("precision", self.precision, PRECISIONS)
        if self.score_valid and self.valid <= 0:
            raise UserError("score_valid needs validation data; set valid above 0")
        if self.clip_norm is not None:
            refuse_outside("clip_norm", self.clip_norm, 1e-9)

    def _check_test_data(self) -> None:
        refuse_unknown_choice("pool", self.pool, ("train", "train_and_test"))
        refuse_unknown_choice("client_test", self.client_test, ("split", "official"))
        official = self.client_test == "official"
        if official and self.test != 0:
            raise UserError(
                f"client_test is official, so that nothing is held out of the clients' samples; set test to 0, not "
                f"{self.test:g}"
            )
        if not official and self.test <= 0:
            raise UserError(
                f"test must be above 0, got {self.test:g}: every client needs samples to be scored on"
            )
        if self.pool == "train_and_test" and official:
            raise UserError("pool train_and_test leaves no official test set; set client_test to split")
        if self.pool == "train_and_test" and self.public:
            raise UserError(
                "pool train_and_test leaves no official test set to draw public samples from; set public to 0"
            )

    @property
    def seed_of_data(self) -> int:
        """The seed of the partition and the splits."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def scene(self) -> Scene:
        """The settings that parts of a method may read."""
        return Scene(**{name: getattr(self, name) for name in Scene._fields})

    def evaluates(self, round: int) -> bool:
        """Whether all clients are evaluated after ``round`` rounds."""
        return round % self.evaluate_every == 0 or round == self.rounds

    def learning_rate_at(self, round: int) -> float:
        """Returns the learning rate of a round counted from 0.

        It grows linearly in the warm-up and follows the schedule after it, times a constant factor per round.
        """
        warm = min((round + 1) / self.warmup_rounds, 1.0) if self.warmup_rounds else 1.0
        falling = rate_factor(self.schedule, round - self.warmup_rounds, self.rounds - self.warmup_rounds)
        return self.learning_rate * warm * self.lr_decay**round * falling


NEUTRAL: dict[str, Any] = {
    "newcomers": 0,
    "selection": "fixed",
    "initialisation": "default",
    "weight_decay": 0.0,
    "clip_norm": None,
    "min_local_steps": 0,
    "warmup_rounds": 0,
    "lr_decay": 1.0,
    "optimiser": "sgd",
    "schedule": "constant",
    "local_schedule": "constant",
    "pool": "train",
    "client_test": "split",
    "public": 0,
    "public_in_test": False,
    "augmentation": "none",
    "observe": "evaluated",
    "calibration": "whole",
    "metrics": "",
    "score_valid": False,
    "precision": "float32",
    "under": (),
    "data_seed": None,
}  # values with which a run is as if the setting did not exist; every setting that is added later belongs here

LEAST = {
    "clients": 0,
    "newcomers": 0,
    "rounds": 1,
    "local_epochs": 0,
    "batch_size": 1,
    "learning_rate": 0,
    "weight_decay": 0,
    "min_local_steps": 0,
    "warmup_rounds": 0,
    "public": 0,
    "evaluate_every": 1,
}


def with_settings(experiment: Experiment, settings: dict[str, Any]) -> Experiment:
    """Returns the experiment with other settings.

    Raises:
        UserError: a setting is unknown, of the wrong type or outside its range.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(Experiment)}
    for key, value in settings.items():
        if key not in fields:
            raise unknown_setting(key)
        if not is_of_kind(value, fields[key]):
            raise UserError(f"setting {key} must be {fields[key]}, got {value!r}")
    return dataclasses.replace(experiment, **settings)


ALIASES = {
    "learning_rate": "lr eta step_size local_lr client_lr",
    "local_epochs": "epochs epoch e n_epochs num_epochs local_epoch client_epochs",
    "batch_size": "bs b batch minibatch local_batch_size",
    "clients": "k n_clients num_clients n_users num_users users",
    "rounds": "t r n_rounds num_rounds global_rounds comm_rounds communication_rounds",
    "selection": "sampling client_sampling sampler",
    "participation_rate": "c frac fraction join_ratio sample_rate client_fraction fraction_fit clients_per_round",
    "weight_decay": "wd l2",
    "clip_norm": "clip grad_clip max_norm max_grad_norm gradient_clipping",
    "model": "net network arch architecture",
    "method": "algorithm algo strategy",
    "optimiser": "opt optim",
    "schedule": "scheduler lr_scheduler lr_schedule",
    "lr_decay": "gamma decay learning_rate_decay",
    "warmup_rounds": "warmup",
    "evaluate_every": "eval_every eval_freq test_every eval_gap",
    "valid": "val validation",
    "partition": "alpha dirichlet non_iid niid heterogeneity",
    "initialisation": "init",
    "precision": "dtype amp",
    "dataset": "ds",
    "under": "disturbance disturbances noise attack attacks corruption robustness",
}  # what other programs call a setting; used for hints alone


def unknown_setting(key: str, also: Iterable[str] = ()) -> UserError:
    """Returns the error for a name that is no setting; it lists all settings, then the names nearest to it.

    Args:
        also: other names that are accepted in the same place.

    >>> print(str(unknown_setting("enigne", also=["engine"]))[-22:])
    ; did you mean engine?
    >>> print(str(unknown_setting("lr"))[-29:])
    ; did you mean learning_rate?
    """
    known = [field.name for field in dataclasses.fields(Experiment)]
    meant = [name for name, others in ALIASES.items() if key.lower() in others.split()]
    near = meant or near_names(key, [*known, *also])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UserError(f"there is no setting {key!r}; known: {', '.join(known)}{hint}")
