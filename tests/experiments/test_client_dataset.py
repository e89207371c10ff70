"""The rows of a client as a dataset of PyTorch: those that a run trains, chooses and tests on."""

import numpy as np
import pytest
from torch.utils.data import DataLoader

import idiolect
from idiolect.errors import UserError

ROWS = {"ann": (np.arange(20.0).reshape(10, 2), [0, 1] * 5), "bo": (np.ones((10, 2)), [1, 0] * 5)}


def test_splits_are_those_of_a_run():
    sizes = [len(idiolect.client_dataset("ann", split, data=ROWS)) for split in ("train", "valid", "test")]
    assert sizes == [6, 2, 2]
    x, y = next(iter(DataLoader(idiolect.client_dataset(0, data=ROWS), batch_size=4)))
    assert x.shape == (4, 2) and y.shape == (4,)


def test_an_unknown_client_or_split_is_refused():
    with pytest.raises(UserError, match="there is no client 'cy'; the clients are ann, bo"):
        idiolect.client_dataset("cy", data=ROWS)
    with pytest.raises(UserError, match="split"):
        idiolect.client_dataset("ann", "tset", data=ROWS)
