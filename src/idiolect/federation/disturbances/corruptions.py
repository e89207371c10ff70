"""Corruptions of inputs, in five severities, on rows as networks read them.

Images are corrupted on the scale from black, 0, to white, 1, and clipped to it.  The severities of noise and contrast
are those of Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", ICLR 2019, https://arxiv.org/abs/1903.12261 (ImageNet-C); blur is scaled to small images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from idiolect.errors import UserError
from idiolect.federation.federation import Federation

__all__ = ["KINDS", "corrupted", "holds_images", "refuse_unfit"]

KINDS = ("noise", "blur", "contrast", "occlusion")
NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)  # standard deviation in units of the pixels' range
NOISE_OF_NUMBERS = (0.2, 0.4, 0.6, 0.8, 1.0)  # in standard deviations of the feature
REPLACED_TOKENS = (0.05, 0.1, 0.2, 0.3, 0.5)  # probability of each token
BLUR = (0.02, 0.03, 0.04, 0.06, 0.08)  # standard deviation of the kernel as a part of the shorter side
CONTRAST = (0.4, 0.3, 0.2, 0.1, 0.05)  # factor on the distance from the image's mean
OCCLUSION = (0.2, 0.3, 0.4, 0.5, 0.6)  # side of the black square as a part of the image's side
Array = NDArray[Any]


def holds_images(federation: Federation) -> bool:
    """Whether the inputs are images: channels, rows and columns of pixels."""
    return federation.x.ndim == 4 and min(federation.x.shape[2:]) > 1


def refuse_unfit(federation: Federation, kind: str, subject: str) -> None:
    """Refuses a corruption of images where the inputs are none."""
    if kind != "noise" and not holds_images(federation):
        raise UserError(f"{subject}: {kind} corrupts images and these inputs are none; set kind to noise")


def corrupted(
    federation: Federation, x: Array, kind: str, severity: int, random: np.random.Generator
) -> Array:
    """Returns rows ``x`` of the federation corrupted; severity is 1 to 5."""
    level = severity - 1
    if x.dtype.kind == "i":
        hit = random.random(x.shape) < REPLACED_TOKENS[level]
        return np.where(hit, random.integers(0, int(federation.x.max()) + 1, x.shape), x)
    if not holds_images(federation):
        return (x + NOISE_OF_NUMBERS[level] * random.standard_normal(x.shape)).astype(x.dtype)
    low, width = _range(federation)
    pixels = np.clip(IMAGES[kind]((x - low) / width, level, random), 0.0, 1.0)
    found: Array = (pixels * width + low).astype(x.dtype)
    return found


def _range(federation: Federation) -> tuple[Array, Array]:
    """Returns by channel black and the distance to white, as networks read them.

    Bytes say what they are; other numbers range from the least to the largest of the channel in the pool.
    """
    fitted = federation.preprocessing
    if fitted.scale == 1.0 or not fitted.mean:
        low, high = (edge(federation.x, axis=(0, 2, 3), keepdims=True)[0] for edge in (np.min, np.max))
        return low, np.where(high > low, high - low, 1.0)
    mean, std = (np.asarray(each, np.float64)[:, None, None] for each in (fitted.mean, fitted.std))
    return -mean / std, 1.0 / std


def _noise(pixels: Array, level: int, random: np.random.Generator) -> Array:
    return pixels + NOISE[level] * random.standard_normal(pixels.shape)


def _blur(pixels: Array, level: int, random: np.random.Generator) -> Array:
    width = BLUR[level] * min(pixels.shape[2:])
    found: Array = gaussian_filter(pixels, (0, 0, width, width))
    return found


def _contrast(pixels: Array, level: int, random: np.random.Generator) -> Array:
    mean = pixels.mean(axis=(2, 3), keepdims=True)
    found: Array = (pixels - mean) * CONTRAST[level] + mean
    return found


def _occlusion(pixels: Array, level: int, random: np.random.Generator) -> Array:
    """Returns images with a black rectangle each, at a place of its own."""
    found, sides = pixels.copy(), [max(round(OCCLUSION[level] * side), 1) for side in pixels.shape[2:]]
    tops, lefts = (
        random.integers(0, whole - side + 1, len(pixels))
        for whole, side in zip(pixels.shape[2:], sides, strict=True)
    )
    for image, top, left in zip(found, tops, lefts, strict=True):
        image[:, top : top + sides[0], left : left + sides[1]] = 0.0
    return found


IMAGES = {"noise": _noise, "blur": _blur, "contrast": _contrast, "occlusion": _occlusion}
