"""CharLSTM: the next character after 80, as LEAF and FedPHP learn Shakespeare.

LEAF: Caldas et al., 2018 (https://arxiv.org/abs/1812.01097); FedPHP: Li et al., ECML-PKDD 2021.  Each of 81
characters is embedded in 8 numbers, two LSTM layers of 256 read them, and the state after the last enters the
classifier.  Units: the embedding, each LSTM layer, the classifier.

The net takes int64 tokens [B, T], not images; its builder is told of them as images of 1x1xT. A task hands it
a batch of such images, of whatever type, as tokens. Initialisation: the framework's default; the schemes of
MAP and SuPerFed say nothing of embeddings and LSTMs, which start by the default under them too.
"""

from __future__ import annotations

from torch import nn

from idiolect.models.feedforward_builder import ImageDoesNotFit
from idiolect.models.lstm import LSTM, LastStep
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["char_lstm"]


def char_lstm(
    *,
    in_channels: int,
    image_size: tuple[int, int],
    n_classes: int,
    vocabulary: int = 81,
    embedding: int = 8,
    hidden: int = 256,
    head_bias: bool = True,
) -> Net:
    """Embedding, two LSTM layers, linear head: 820 185 parameters for 81 characters and as many classes.

    Args:
        in_channels: 1.
        image_size: (1, T), where T is the number of tokens; no parameter depends on it.
        n_classes: K, outputs of the head.
        vocabulary: number of tokens.
        embedding: numbers that stand for a token.
        hidden: width of both LSTM layers.
        head_bias: whether the head has a bias.
    """
    if (in_channels, image_size[0]) != (1, 1):
        raise ImageDoesNotFit("it reads rows of tokens, given as images of one channel and one row")
    return Net(
        [
            Unit(embedding=nn.Embedding(vocabulary, embedding)),
            Unit(lstm=LSTM(embedding, hidden)),
            Unit(lstm=LSTM(hidden, hidden), last=LastStep()),
            Unit(linear=nn.Linear(hidden, n_classes, bias=head_bias)),
        ]
    )
