"""Networks with `features` and `head`, ordered units, masked normalisation and planned dropout.

A net is pure under `torch.func.functional_call`: parameters and buffers come from outside, and everything
else that decides its output is in a `BatchContext` (which rows are real, which units train, which random keys
belong to the rows).
"""

from idiolect.models.architecture_digest import architecture
from idiolect.models.augmentation import crop_and_flip
from idiolect.models.batch_context import BatchContext
from idiolect.models.catalogue import ModelDescription, build, describe, names, options, resolved, suggested
from idiolect.models.dropout import PlannedDropout, planned_uniform
from idiolect.models.feedforward_builder import Convolution, stack
from idiolect.models.from_module import InputShapes, from_module
from idiolect.models.initialise import SCHEMES, initialise
from idiolect.models.lstm import LSTM
from idiolect.models.masked_batchnorm import MaskedBatchNorm, batch_statistics
from idiolect.models.model_check import check_model
from idiolect.models.model_file import ModelFile, file_of_model, load_model_file, load_recorded
from idiolect.models.net import Net
from idiolect.models.registered_models import is_registered, name_of_model, register_model
from idiolect.models.sharing_unit import Unit

__all__ = [
    "LSTM",
    "SCHEMES",
    "BatchContext",
    "Convolution",
    "InputShapes",
    "MaskedBatchNorm",
    "ModelDescription",
    "ModelFile",
    "Net",
    "PlannedDropout",
    "Unit",
    "architecture",
    "batch_statistics",
    "build",
    "check_model",
    "crop_and_flip",
    "describe",
    "file_of_model",
    "from_module",
    "initialise",
    "is_registered",
    "load_model_file",
    "load_recorded",
    "name_of_model",
    "names",
    "options",
    "planned_uniform",
    "register_model",
    "resolved",
    "stack",
    "suggested",
]
