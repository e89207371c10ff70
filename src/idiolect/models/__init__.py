"""Networks with `features` and `head`, ordered units, masked normalisation and planned dropout.

A net is pure under `torch.func.functional_call`: parameters and buffers come from outside, and everything
else that decides its output is in a `How` (which rows are real, which units train, which random keys belong
to the rows).
"""

from idiolect.models.architecture import architecture
from idiolect.models.augment import crop_and_flip
from idiolect.models.batchnorm import MaskedBatchNorm, batch_statistics
from idiolect.models.catalogue import Description, build, describe, names, options, resolved
from idiolect.models.dropout import PlannedDropout, planned_uniform
from idiolect.models.from_module import from_module
from idiolect.models.how import How
from idiolect.models.initialise import SCHEMES, initialise
from idiolect.models.lstm import LSTM
from idiolect.models.net import Net
from idiolect.models.own import is_own, register_model
from idiolect.models.stack import Convolution, stack
from idiolect.models.trial import trial
from idiolect.models.unit import Unit

__all__ = [
    "LSTM",
    "SCHEMES",
    "Convolution",
    "Description",
    "How",
    "MaskedBatchNorm",
    "Net",
    "PlannedDropout",
    "Unit",
    "architecture",
    "batch_statistics",
    "build",
    "crop_and_flip",
    "describe",
    "from_module",
    "initialise",
    "is_own",
    "names",
    "options",
    "planned_uniform",
    "register_model",
    "resolved",
    "stack",
    "trial",
]
