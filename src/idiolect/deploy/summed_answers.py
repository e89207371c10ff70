"""What secure aggregation adds up of the sites' answers: uploads with their weights, losses, scores and work.

Nothing of that reaches the server of a single site; it records the sums, and means where a run has numbers of single
clients.  The bits of a number are chosen so that the sum of all sites fits into a word.  A mean of uploads is then off
by at most (n / 2) 2^-bits W / sum_k w_k, beside the rounding of 64-bit numbers: n sites, weights w_k <= W.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from idiolect.core import Messages, Method, Part
from idiolect.core.trees import tree_map
from idiolect.deploy.configuration import SumRules
from idiolect.deploy.secure_sums import Field, Layout, Misfit, Numbers, Words, room
from idiolect.deploy.tensor_names import flatten, unflatten
from idiolect.engines.dry_round import ReportedNames
from idiolect.errors import UserError, refuse_outside
from idiolect.evaluation import Scores
from idiolect.experiments.rounds.client_work import Work
from idiolect.experiments.rounds.round import FollowUpTasks
from idiolect.experiments.setting import Setting

__all__ = [
    "LOSS",
    "Name",
    "Statements",
    "Summed",
    "follow_up_statements",
    "layout_of",
    "pack",
    "refuse_unsummable",
    "scores_at",
    "scores_of",
    "spread",
    "stated_scores",
    "stated_work",
    "sum_rules",
    "training_statements",
    "unpack",
    "uploads_of",
    "work_of_each",
]

VALUE_BITS = 16  # before the binary point of an upload's number
STATEMENT_BITS = 24  # before the binary point of a loss or a score
OWN_WEIGHT = 2.0**20  # the largest weight that a part may make itself
FEWEST = 2  # sites in a sum
ROWS = 2**20  # of a site, where nobody says how many it has
TOLD, WORK = "losses and scores", "work"  # fields beside those of the upload
STEPS, FLOPS = ("work", "steps", ""), ("work", "flops", "")

Name = tuple[str, str, str]  # of a number that a site states: moment or split, predictor, metric
Statements = dict[Name, float]
LOSS: Name = ("loss", "", "")


class Summed(NamedTuple):
    """What the server learns of a sum: the mean upload, the sum of the weights, and the mean of every statement."""

    messages: Messages
    means: Statements
    work: Work


def sum_rules(setting: Setting, cohort: int, threshold: int | None, rows: Iterable[int | None]) -> SumRules:
    """Returns the rules for an experiment whose rounds select ``cohort`` sites.

    By default more than two thirds of them make a sum: no group of fewer than a third then gets both secrets of a site,
    even if a server that lies asks different sites for different ones.

    Raises:
        UserError: the experiment needs more than sums, or the threshold does not protect.
    """
    refuse_unsummable(setting)
    threshold = 2 * cohort // 3 + 1 if threshold is None else threshold
    if cohort < FEWEST:
        raise UserError(
            f"secure aggregation adds up at least {FEWEST} sites, and a round of this deployment selects {cohort}; use "
            "more sites, or leave secure aggregation out"
        )
    refuse_outside("secure_threshold", threshold, max(FEWEST, cohort // 2 + 1), cohort)
    if setting.experiment.weighting != "samples":
        return SumRules(threshold, 1)
    most = max([ROWS if one is None else one for one in rows])
    return SumRules(threshold, 2 ** max(most - 1, 0).bit_length())


def refuse_unsummable(setting: Setting) -> None:
    """Refuses a method or a setting of which the server needs more than sums; the sentence names part and reason."""
    experiment, method = setting.experiment, setting.method
    for part in method.parts:
        if reason := _needs_single_uploads(part):
            raise UserError(
                f"secure aggregation shows the server sums alone, and {part.name} of {method.name} {reason}; use "
                "another method, or leave secure aggregation out"
            )
    if experiment.selection == "poisson":
        raise UserError(
            "secure aggregation needs enough sites in every round, and selection=poisson draws rounds of any size; set "
            "selection to fixed, or leave secure aggregation out"
        )
    forms = [flatten(found.messages) for found in setting.forms]
    kinds = {tuple((name, leaf.dtype, leaf.shape) for name, leaf in form.items()) for form in forms}
    if len(kinds) > 1:
        raise UserError(
            f"secure aggregation adds up uploads of one form, and {method.name} has {len(kinds)}; use another method, "
            "or leave secure aggregation out"
        )
    whole = next((name for name, leaf in forms[0].items() if not leaf.is_floating_point()), None)
    if whole is not None:
        raise UserError(
            f"secure aggregation adds up uploads, and {whole} of {method.name} holds whole numbers, not a mean; "
            "use another method or network, or leave secure aggregation out"
        )


def _needs_single_uploads(part: Part) -> str:
    """Returns what a part does with single uploads; empty where the server works with their sum."""
    if part.gather and not part.guarantee:
        return "looks at every upload before there is a mean"
    if part.personal_download:
        return "makes what it sends to a site from single uploads"
    if part.keep:
        return "keeps something of each site's upload"
    return "reads single uploads beside their mean" if part.individual else ""


def uploads_of(round: int) -> str:
    """Returns the name of the sum of a round, counted from 0, of which sites help to make one."""
    return f"uploads of round {round + 1}"


def scores_of(round: int, settle: str | None) -> str:
    """Returns the name of the sum of what sites state after the merge of a round, or at the end."""
    return "scores of the end" if settle == "end" else f"scores of round {round + 1}"


def training_statements(setting: Setting, observe: bool) -> list[Name]:
    """Returns the names of what a site states after training: its loss, its scores if they are asked for, its work."""
    if setting.numbers_stay_at_sites:
        return []
    found = [LOSS]
    if observe:
        names = [forms.reported for forms in setting.forms]
        found += _scored(setting, "before", [(*each.untrained, *each.merged) for each in names])
        found += _scored(setting, "after", [each.trained for each in names])
    return [*found, STEPS, FLOPS]


def follow_up_statements(setting: Setting, tasks: FollowUpTasks) -> list[Name]:
    """Returns the names of what a site states after a merge or at the end; none where it states nothing."""
    if setting.numbers_stay_at_sites or not (tasks.settle or tasks.score):
        return []
    found: list[Name] = []
    if tasks.score:
        names = [_at(forms.reported, tasks) for forms in setting.forms]
        found += _scored(setting, "test", names)
        if (setting.validates and bool(setting.method.choices)) or setting.experiment.score_valid:
            found += _scored(setting, "valid", names)
    return [*found, STEPS, FLOPS]


def _at(reported: ReportedNames, tasks: FollowUpTasks) -> tuple[str, ...]:
    return reported.end if tasks.settle == "end" else reported.merged


def _scored(setting: Setting, moment: str, predictors: Iterable[tuple[str, ...]]) -> list[Name]:
    every = sorted({name for names in predictors for name in names})
    return [(moment, predictor, metric) for predictor in every for metric in setting.metrics]


def layout_of(setting: Setting, names: list[Name], uploads: bool) -> Layout:
    """Returns where the numbers of an answer lie in a sum.

    Args:
        names: of what sites state.
        uploads: they upload as well.
    """
    sites = setting.federation.population
    bits = room(sites)
    form = flatten(setting.forms[0].messages) if uploads else {}
    fields = [Field(name, tuple(leaf.shape), bits - VALUE_BITS) for name, leaf in form.items()]
    told = _told(names)
    stated = (Field(TOLD, (told, 2), bits - STATEMENT_BITS), Field(WORK, (len(names) - told, 2), 0))
    return Layout((*fields, *stated), sites)


def _told(names: list[Name]) -> int:
    """Returns how many statements there are before those of work, which are larger numbers."""
    return sum(name not in (STEPS, FLOPS) for name in names)


def pack(
    setting: Setting, rules: SumRules, names: list[Name], said: Statements, upload: Messages | None
) -> Words:
    """Returns the words that a site adds to a sum.

    Args:
        said: what it states; a number that is missing or beyond its limit counts as undefined.
        upload: None where it uploads nothing.

    Raises:
        Misfit: the upload holds a number beyond its limit.
    """
    values: dict[str, Numbers] = {}
    for part, (value, weight) in (upload or {}).items():
        share = float(weight) / _most(setting.method, rules, part)
        if not 0 < share <= 1:
            raise Misfit(
                f"the weight of {part} is {float(weight):g}, and this deployment adds up weights above 0 and up to "
                f"{_most(setting.method, rules, part):g}"
            )
        leaves = flatten(cast("Messages", {part: (value, torch.tensor(share, dtype=torch.float64))}))
        *rest, last = leaves
        values |= {name: share * leaves[name].double().numpy() for name in rest} | {
            last: leaves[last].numpy()
        }
    layout, numbers = (
        layout_of(setting, names, upload is not None),
        [said.get(name, math.nan) for name in names],
    )
    told = _told(names)
    for field, stated in zip(layout.fields[-2:], (numbers[:told], numbers[told:]), strict=True):
        limit = layout.limit(field)
        pairs = [(one, 1.0) if abs(one) <= limit else (0.0, 0.0) for one in stated]
        values[field.name] = np.array(pairs, np.float64).reshape(field.shape)
    return layout.pack(values)


def unpack(
    setting: Setting, rules: SumRules, names: list[Name], uploads: bool, words: Words, count: int
) -> Summed:
    """Returns what a sum of ``count`` sites says.

    Raises:
        Misfit: no sites within their limits can have made the sum.
    """
    found = layout_of(setting, names, uploads).unpack(words, count)
    pairs = np.concatenate([found.pop(TOLD), found.pop(WORK)])
    stated = dict(zip(names, pairs, strict=True))
    said = {name: float(total / defined) for name, (total, defined) in stated.items() if defined > 0.5}
    work = Work(0, 0.0)
    if names:
        is_whole = round(stated[FLOPS][1]) == count
        work = Work(round(stated[STEPS][0]), float(stated[FLOPS][0]) if is_whole else math.nan)
    messages: Messages = {}
    form = setting.forms[0].messages
    if uploads:
        sums = unflatten(
            {name: torch.from_numpy(one) for name, one in found.items()}, [_double(form)], "the sum"
        )
        for part, (total, share) in cast("Messages", sums).items():
            if not 0 < share <= count:
                raise Misfit(
                    f"the weights of {part} add up to {float(share):.4g}, where {count} sites sent one each"
                )
            mean = tree_map(lambda leaf, by=share: leaf / by, total)
            messages[part] = (mean, share * _most(setting.method, rules, part))
    messages = tree_map(lambda leaf, like: leaf.to(like.dtype), messages, form) if messages else {}
    return Summed(messages, said, work)


def spread(messages: Messages, count: int) -> Messages:
    """Returns a mean as the uploads of ``count`` sites, each the same: their sums are those of the real ones."""

    def rows(leaf: Tensor) -> Tensor:
        return leaf.expand(count, *leaf.shape)

    return {part: (tree_map(rows, value), rows(weight / count)) for part, (value, weight) in messages.items()}


def stated_scores(scores: Mapping[str, Scores]) -> Statements:
    """Returns one client's scores, by moment or split, as statements."""
    return {
        (when, predictor, metric): values[0]
        for when, found in scores.items()
        for predictor, metrics in found.items()
        for metric, values in metrics.items()
    }


def stated_work(work: Work) -> Statements:
    return {STEPS: float(work.steps), FLOPS: float(work.flops)}


def scores_at(means: Statements, moment: str) -> Scores:
    """Returns the mean scores at a moment, in the place of those of a single client."""
    found: Scores = {}
    for (when, predictor, metric), mean in means.items():
        if when == moment:
            found.setdefault(predictor, {})[metric] = [mean]
    return found


def work_of_each(clients: list[int], total: Work) -> list[tuple[int, Work]]:
    """Returns even shares of the work, because nobody knows more than its sum."""
    steps, more = divmod(total.steps, max(len(clients), 1))
    each = total.flops / max(len(clients), 1)
    return [(client, Work(steps + (place < more), each)) for place, client in enumerate(clients)]


def _most(method: Method, rules: SumRules, part: str) -> float:
    return OWN_WEIGHT if part in method.own_weights else float(rules.rows)


def _double(form: Messages) -> Messages:
    return tree_map(lambda leaf: leaf.new_empty(leaf.shape, dtype=torch.float64, device="cpu"), form)
