"""Part: one composable piece of a federated method, a named tuple of pure functions, and the values they exchange.

Shapes in comments: B batch, K classes.  What trains is a dictionary of flat trees: ``"model"`` is the main model, other
names are trees that a part adds in ``start`` (a second model, an extra head).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeAlias

from torch import Tensor

from idiolect.core.stage import Plan, Result
from idiolect.core.trees import Flat, Flats, Slot
from idiolect.errors import UserError
from idiolect.option_parsing import parse_call, write_call

__all__ = [
    "Batch",
    "CarryingGradient",
    "Choice",
    "Clock",
    "Facts",
    "Forward",
    "GatherView",
    "GradientFunction",
    "Guarantee",
    "Initial",
    "Kept",
    "Loss",
    "Message",
    "Messages",
    "Mode",
    "Model",
    "Out",
    "Part",
    "Predictor",
    "Results",
    "Scene",
    "ServerView",
    "Structure",
    "Task",
    "Uploaded",
    "View",
    "cohort_size",
    "keeps_options",
]


class Out(NamedTuple):
    """What the network gives for a batch."""

    features: Tensor  # [B, d] what enters the classifier
    logits: Tensor  # [B, K]
    extra: Mapping[str, Tensor] = {}  # by part: what its forward passes on to its loss
    encoded: Tensor | None = None  # [B, e] what enters the first linear layer; None if that is the features


class Batch(NamedTuple):
    """The examples that a step sees, padded to a common number."""

    x: Tensor
    y: Tensor  # [B] classes; or, for a task without classes, numbers [B, K]
    mask: Tensor  # [B] 1 for a real example, 0 for padding
    key: Tensor  # [B] int64, planned randomness of each example (dropout, augmentation)
    draws: dict[str, Tensor]  # by part: the U(0,1) or N(0,1) draws it declared for this step


class Model(NamedTuple):
    """One model: flat dictionaries from names to tensors."""

    params: Flat
    buffers: Flat


class Message(NamedTuple):
    """What a part uploads.  ``merge`` sees only sum(weight * value) / sum(weight) over the cohort."""

    value: Slot
    weight: Tensor


# what a client uploads, by part, and under "buffers" the running statistics: (value, weight)
Messages: TypeAlias = dict[str, tuple[Slot, Tensor]]


class Facts(NamedTuple):
    """Facts about a client that its parts may use."""

    class_counts: Tensor  # [K] of its training split; without classes the rows with each label, or zeros
    samples: Tensor  # training samples
    weight: Tensor  # its weight in averages, by the run's weighting


def cohort_size(participation_rate: float, population: int) -> int:
    """Returns ``max(floor(Q * K), 1)``, safe against 0.29 * 100 = 28.999...

    >>> cohort_size(0.29, 100), cohort_size(0.01, 10)
    (29, 1)
    """
    return max(int(participation_rate * population + 1e-9), 1)


class Clock(NamedTuple):
    """A moment of the run."""

    round: int  # from 0
    rounds: int
    participation_rate: float
    cohort_size: int
    population: int
    learning_rate: float  # of this round
    newcomer: bool = False  # the client never took part and joins after the last round

    @property
    def expected_cohort(self) -> int:
        """The clients that a round selects, on average where each is drawn by itself; those that fail count."""
        return cohort_size(self.participation_rate, self.population)


class Structure(NamedTuple):
    """The structure of the network, as far as parts need it."""

    params: tuple[str, ...]
    buffers: tuple[str, ...]
    unit_of: Mapping[str, int]  # parameter or buffer name -> position of its unit, input first
    n_units: int
    layers: tuple[tuple[str, ...], ...]  # parameter names layer by layer
    linear_head: bool  # whether the last unit is one linear layer
    n_features: int  # d
    n_classes: int  # K
    convolutional: bool = False  # whether some layer is a convolution
    task: str = "classification"  # one of ``OBJECTIVES``
    frozen_units: frozenset[int] = frozenset()  # units whose parameters are all constants
    momenta: tuple[tuple[str, float], ...] = ()  # of running statistics, by name, where it is not 0.1
    batch_normalisation: frozenset[str] = frozenset()  # parameters and buffers of its layers
    own_buffers: tuple[str, ...] = ()  # buffers that are no running statistics of normalisation
    batchable: bool = True  # whether many clients can be computed at once
    has_head: bool = True  # whether the last unit is a classifier on features
    n_scalars: int = 0  # of all parameters

    @property
    def classifier(self) -> str:
        """The name of the weight of the linear head, [K, d]."""
        return next(name for name in self.params if self.unit_of[name] == self.n_units - 1)


class Scene(NamedTuple):
    """Options of local training, the same for every method of a comparison."""

    local_epochs: float = 2
    batch_size: int = 64
    learning_rate: float = 0.03
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None  # of the gradient of each tree
    min_local_steps: int = 0
    buffers: str = "average"  # average | private | frozen
    optimiser: str = "sgd"  # sgd | adam | adamw, with options: adam(beta_two=0.99)
    local_schedule: str = "constant"  # of the learning rate over the steps of a stage

    @property
    def uses_sgd(self) -> bool:
        """Whether local steps are those of SGD, whose length the learning rate and momentum say."""
        return parse_call(self.optimiser)[0] == "sgd"

    @property
    def has_local_schedule(self) -> bool:
        """Whether the learning rate changes from step to step within a stage."""
        return parse_call(self.local_schedule)[0] != "constant"


Mode: TypeAlias = bool | tuple[bool, ...]  # whether the network trains, as a whole or unit by unit
# runs the network: params, buffers, batch, train -> Out, buffers'
Forward: TypeAlias = Callable[[Flats, Flats, Batch, Mode], tuple[Out, Flats]]
Loss: TypeAlias = Callable[[Flats, Batch, Out], Tensor]  # the training loss: params, batch, out -> scalar
# the stages that have ended, by name; under ``UPLOAD`` the one after which the client uploads
Results: TypeAlias = Mapping[str, Result]


class Task(NamedTuple):
    """The network and its loss, before any part wraps them."""

    forward: Callable[[Flat, Flat, Batch, Mode], tuple[Out, Flat]]
    criterion: Loss
    head: Callable[[Flat, Tensor], Tensor]  # parameters, features -> logits
    structure: Structure
    augment: Callable[[Batch], Batch] | None = None  # applied to every batch that a step trains on

    def bare(self, params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
        """Runs the network on the tree "model", before any part wraps it."""
        out, new = self.forward(params["model"], buffers["model"], batch, train)
        return out, {**buffers, "model": new}


class Initial(NamedTuple):
    """The initial model theta_0, and other random initialisations."""

    params: Flat
    buffers: Flat
    draw: Callable[
        [str, bool], Model
    ]  # (purpose, whether from this client's own seed) -> a new initialisation
    structure: Structure
    # (purpose, shape) -> numbers from U(-1, 1), the same for everyone, for tensors that are no layers of the network
    spread: Callable[[str, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class View:
    """All that a part may read on one client in one round.  It may write nothing."""

    origin: Model  # the model as received: shared tensors, and the client's own buffers
    received: Model  # the same, with the layers that the client keeps private filled in
    current: Model  # the client's present version of it: as received, and from the upload on as trained
    server: Slot  # this part's slot on the server; on a client only if the part broadcasts it
    download: Slot  # what this part's ``personal_download`` made for this client
    private: Slot  # this part's slot on this client
    facts: Facts
    clock: Clock
    scene: Scene
    task: Task
    complete: bool  # whether the server holds every parameter of the main model
    uploads: Slot  # on the server, if the part declares ``individual``: what each sent for the server update

    def predict(self, model: Model, batch: Batch) -> Out:
        """Runs the network in evaluation mode, before any part wraps it."""
        return self.task.forward(model.params, model.buffers, batch, False)[0]


class Kept(Protocol):
    """What the server keeps of each client for one part."""

    @property
    def clients(self) -> list[int]:
        """The clients that the server has heard from, in order."""

    def rows(self, clients: Sequence[int]) -> Slot:
        """Returns what is kept of some clients, stacked; of one not heard from what ``init_kept`` says."""

    def blocks(self) -> Iterator[tuple[list[int], Slot]]:
        """Yields all clients heard from with what is kept of them, stacked, as many at a time as memory allows."""


class Uploaded(NamedTuple):
    """The newest uploads that reached the server in a round, one by one.

    Args:
        clients: whose they are, in order.
        value: what they hold, stacked: the part's own message, or that of the server update.
        weight: [C] their weights in averages.
    """

    clients: list[int]
    value: Slot
    weight: Tensor


@dataclass(frozen=True)
class ServerView:
    """All that a part may read on the server where it tells clients apart.

    Args:
        shared: the shared model.
        slot: the part's slot on the server.
        kept: what the part keeps of each client.
        seed: of the run; a draw comes from ``derive(seed, purpose, round, client)``.
    """

    shared: Model
    slot: Slot
    kept: Kept
    clock: Clock
    task: Task
    seed: int


@dataclass(frozen=True)
class GatherView:
    """All that a part may read between a round's uploads and their mean: before they leave, or on the server.

    Args:
        origin: by message, what a client that has learnt nothing would send; the update of a client is the difference.
            Where clients were sent different models, it has a row for each.
        model: the names of the messages that are the model: the server update's, and running statistics.
        noise: (tensor, name) -> N(0, 1) numbers in the shape of the tensor; others for each name, round and part, and
            before uploads leave for each client.
    """

    origin: dict[str, Slot]
    model: tuple[str, ...]
    clock: Clock
    noise: Callable[[Tensor, str], Tensor]


class Guarantee(NamedTuple):
    """What a part promises: differential privacy of one client or of one example, once it is accounted for.

    Args:
        unit: whose presence the releases hide, a ``client`` with all its data or an ``example`` of a client.
        observer: from whom: the ``receivers`` of the shared model, where the server is trusted, or the ``server``.
        clip: C, the largest norm of what a unit contributes.
        noise: z, the standard deviation of the noise in units of C; without noise nothing is promised.
        delta: of (epsilon, delta).
    """

    unit: str
    observer: str
    clip: float
    noise: float
    delta: float


class Predictor(NamedTuple):
    """A model that evaluation scores."""

    params: Flats  # the main model under "model"
    buffers: Flats  # in the same form
    forward: Forward | None = None  # None is the network on "model", before any part wraps it
    recalibrate: bool = False  # recompute normalisation statistics on the client's training split first

    @classmethod
    def of(cls, model: Model, recalibrate: bool = False) -> Predictor:
        """Returns the predictor that runs the network on one model."""
        return cls({"model": model.params}, {"model": model.buffers}, recalibrate=recalibrate)


@dataclass(frozen=True)
class Choice:
    """One predictor picked from a family by what it is judged by on validation data, never on test data.

    Args:
        name: what the picked predictor is called in results.
        family: prefix of the predictors to pick from.
        oracle: name of the pick made on test data, reported beside it, and alone where there are no validation data;
            it must hold the word ``oracle``, and ``name`` must not.
    """

    name: str
    family: str
    oracle: str

    def __post_init__(self) -> None:
        if "oracle" not in self.oracle:
            raise UserError(
                f"a pick made on test data must have the word oracle in its name, got {self.oracle!r}"
            )
        if "oracle" in self.name:
            raise UserError(f"a pick made on validation data is no oracle, got the name {self.name!r}")


class GradientFunction(Protocol):
    """Gives the gradients of a step, and the buffers after it."""

    def __call__(self, params: Flats, buffers: Flats, batches: tuple[Batch, ...]) -> tuple[Flats, Flats]:
        """Returns the gradients in the form of ``params``, and the new buffers."""


# what ``gradient`` returns: params, buffers, batches, carry -> gradients, buffers', carry'
CarryingGradient: TypeAlias = Callable[[Flats, Flats, tuple[Batch, ...], Slot], tuple[Flats, Flats, Slot]]


class Part(NamedTuple):
    """One idea of a federated method; an absent hook (None) is the identity."""

    name: str  # in compositions and messages
    init_server: Callable[[Flat, Initial], Slot] | None = None  # shared parameters -> server slot
    init_client: Callable[[Initial], Slot] | None = None  # -> private slot
    private: Callable[[str, Structure], bool] | None = None  # claims tensors that never leave
    start: Callable[[Flats, Flats, View], tuple[Flats, Flats]] | None = None  # where local training begins
    forward: Callable[[Forward, View], Forward] | None = None  # wraps the training predictor
    criterion: Callable[[Loss, View], Loss] | None = None  # wraps the loss on labels, beneath every ``loss``
    loss: Callable[[Loss, View], Loss] | None = None  # wraps the training loss
    carry: Callable[[Flats, View], Slot] | None = None  # initial carry of ``gradient``
    # wraps the function that gives the gradients of a step
    gradient: Callable[[GradientFunction, View], CarryingGradient] | None = None
    # gradients of single examples [B, ...] -> that of the batch, in place of their mean; its hook ``stages`` acts last
    reduce: Callable[[Flats, Batch, View], Flats] | None = None
    stages: Callable[[Plan, Scene, Clock], Plan] | None = None  # edits the plan of local work
    upload: Callable[[Results, View], Message] | None = None  # at the upload mark: sees the stages before it
    finish: Callable[[Results, View], Slot] | None = None  # after local work -> private slot
    score: Callable[[Results, View], Slot] | None = None  # after the merge, on every client
    personalise: Callable[[Results, View], Slot] | None = None  # after the last round, on every client
    # shared parameters, server slot -> what a client that has learnt nothing would upload; None and absent names: zeros
    origin: Callable[[Flat, Slot], Slot] | None = None
    # on clients, after ``upload``, the messages of all parts, stacked over some clients -> what leaves each of them
    release: Callable[[Messages, GatherView], Messages] | None = None
    # on the server, the messages of all parts, stacked over the clients that sent them -> those that are averaged
    gather: Callable[[Messages, GatherView], Messages] | None = None
    merge: Callable[[Flat, Slot, Slot, Clock], tuple[Flat, Slot]] | None = None  # on the server
    serve: Callable[[Results, View, Model], Model] | None = (
        None  # after the server's own stages -> shared model
    )
    serve_slot: Callable[[Results, View], Slot] | None = None  # the same -> server slot
    # what the server keeps of a client at first, from the initial model and the population
    init_kept: Callable[[Initial, int], Slot] | None = None
    # after a round, from single uploads -> what the server keeps of those clients, stacked, and the server slot
    keep: Callable[[Uploaded, ServerView], tuple[Slot, Slot]] | None = None
    # -> what the server sends each of these clients alone, stacked; "params" take the place of shared parameters
    personal_download: Callable[[Sequence[int], ServerView], Slot] | None = None
    shared_model: Callable[[Model, Slot, Task], Predictor] | None = None  # what "global" means on the server
    # what evaluation scores; the results are None before local work
    predictors: Callable[[View, Results | None], dict[str, Predictor]] | None = None
    remarks: Callable[[View], dict[str, Tensor]] | None = None  # numbers about a client worth recording
    check: Callable[[Structure, Scene], None] | None = None  # refuses nets and scenes it cannot serve
    draws: Callable[[Structure], int] | None = None  # U(0,1) draws per step
    noise: Callable[[Structure], int] | None = None  # N(0,1) draws per step, from the run's source of noise
    scalars: Callable[[Slot], int] | None = None  # scalars of a message that travel, if not all of it does
    # shared parameters, server slot -> scalars of these parameters that travel to a client, if not all of them do
    scalars_down: Callable[[Flat, Slot], int] | None = None
    broadcasts: bool = False  # the server slot travels to the clients
    individual: bool = False  # the server reads single uploads, not only their mean
    scored_with_download: bool = (
        False  # predictors read the personal download: all are given theirs before scoring
    )
    weighs: bool = False  # makes the weights of its uploads itself: neither those of the run nor 1
    robust: bool = False  # its ``gather`` is to withstand hostile uploads
    mean_alone: str = ""  # why its message is of use in a plain mean alone, in words after the part's name
    reveals: bool = False  # its message may hold layers that the client keeps, which the server then sees
    needs_validation: bool = False  # cannot work without a validation split
    needs_public: bool = False  # trains on unlabelled public data on the server
    needs_classes: bool = False  # reads labels as classes, or outputs as their logits
    needs_head: bool = False  # works on features or on the classifier: the network must be cut into both
    needs_whole: bool = False  # works on the whole shared model: no part may keep layers of it private
    roles: tuple[str, ...] = ()  # exclusive roles; two parts with one role cannot be chained
    headline: str | None = None  # the predictor this part exists for
    choices: tuple[Choice, ...] = ()  # predictors picked on validation data
    overrides: tuple[str, ...] = ()  # in words, where it departs from the scene
    guarantee: Guarantee | None = None  # of differential privacy
    apart: bool = False  # what its stages train and measure stays on the client, and no upload depends on it
    gives_way: bool = False  # a server update so plain that any other one takes its place
    options: tuple[tuple[str, Any], ...] | None = None  # those that are not the default; None if unknown

    @property
    def written(self) -> str:
        """How the part is written in a composition, such as ``proximal(weight=0.1)``."""
        return write_call(self.name, dict(self.options or ()))

    @property
    def hooks(self) -> tuple[str, ...]:
        """The hooks by which the part acts."""
        return tuple(name for name, value in self._asdict().items() if callable(value))


Options = ParamSpec("Options")


def keeps_options(make: Callable[Options, Part]) -> Callable[Options, Part]:
    """Makes a factory record, in each part that it makes, the options that differ from their defaults.

    Two methods that bring the same part can then share it, or be refused if their options differ.
    """
    signature = inspect.signature(make)

    @wraps(make)
    def made(*args: Options.args, **kwargs: Options.kwargs) -> Part:
        bound = signature.bind(*args, **kwargs).arguments
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in bound.items()}
        other = tuple((n, value) for n, value in given.items() if value != signature.parameters[n].default)
        return make(*args, **kwargs)._replace(options=other)

    return made
