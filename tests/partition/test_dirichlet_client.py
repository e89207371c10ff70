"""MAP's Dirichlet scenes: a mixture of classes for each client."""

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import dirichlet_client

CIFAR10 = np.repeat(np.arange(10), 5000)


def test_dirichlet_client_concentrates_as_alpha_falls():
    def largest_share(alpha):
        made = dirichlet_client(CIFAR10, 50, seed=0, alpha=alpha)
        return np.mean([np.bincount(CIFAR10[rows]).max() / rows.size for rows in made.clients])

    assert largest_share(0.05) > 0.7
    assert 0.3 < largest_share(0.5) < 0.6
    assert largest_share(1e6) < 0.11


def test_sigma_zero_and_huge_alpha_give_equal_sizes():
    sizes = [rows.size for rows in dirichlet_client(CIFAR10, 50, seed=0, alpha=1e6, sigma=0).clients]
    assert max(sizes) - min(sizes) < 15


def test_sigma_spreads_sizes_as_a_log_normal():
    sizes = [rows.size for rows in dirichlet_client(CIFAR10, 200, seed=0, alpha=1e6, sigma=0.3).clients]
    assert 0.25 < np.log(sizes).std() < 0.35


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), "0.5", True, 10**400])
def test_wrong_alpha_is_refused_with_its_range(alpha):
    with pytest.raises(UserError, match=r"dirichlet_client: alpha=.* must be a number from 0.0001 to 1e\+06"):
        dirichlet_client(CIFAR10, 10, seed=0, alpha=alpha)
