"""The token of each character of a text, as LEAF's Shakespeare numbers them.

    x = c_t, ..., c_{t+79};   y = c_{t+80}

The 80 characters of LEAF's Shakespeare keep the numbers LEAF gives them; any other character is token 80, so
there are 81, as Li et al. (FedPHP), ECML-PKDD 2021, table 1, count them.
Source: S. Caldas et al., "LEAF: a benchmark for federated settings", 2018, https://arxiv.org/abs/1812.01097.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LENGTH", "LETTERS", "UNKNOWN", "VOCABULARY", "tokens"]

LENGTH = 80
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = len(LETTERS)
VOCABULARY = len(LETTERS) + 1

_LAST = 127  # not a letter, so every code beyond it is read as this one
_TOKEN_OF_CODE = np.full(_LAST + 1, UNKNOWN, np.uint8)
_TOKEN_OF_CODE[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))


def tokens(text: str) -> npt.NDArray[np.uint8]:
    """Returns the token of each character.

    >>> tokens("A z$").tolist()
    [25, 1, 78, 80]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    found: npt.NDArray[np.uint8] = _TOKEN_OF_CODE[np.minimum(codes, _LAST)]
    return found
