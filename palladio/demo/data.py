"""The digits: 1797 handwritten ones of 8 by 8 pixels, which come with scikit-learn, split once and for all.

1200 are learned from. 237 are for validation: the settings of the training were chosen by them, and they show how it
goes. 360 are held out: they are looked at once, when everything is decided, and give the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palladio.demo.kernels import Array

SPLIT_SEED = 2024
HELD_OUT, VALIDATION = 360, 237


class MissingExtraError(ImportError):
    """The demo needs a package that is not installed."""


@dataclass(frozen=True)
class Digits:
    """Images as rows of pixels, centred and scaled, with their labels.

    Args:
        train_pixels, validation_pixels, test_pixels: `f32[t, 64]`.
        train_labels, validation_labels, test_labels: `int64[t]`, 0 to 9.
        test_images: `f32[t, 8, 8]`, 0 to 16, as they were, for looking at.
    """

    train_pixels: Array
    train_labels: Array
    validation_pixels: Array
    validation_labels: Array
    test_pixels: Array
    test_labels: Array
    test_images: Array


def load_digits() -> Digits:
    """Load and split the digits; the same images are held out whatever the seed of the training.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError(
            "the demo learns the handwritten digits that come with scikit-learn, which is not installed\n"
            "  hint:     pip install 'palladio[demo]'"
        ) from error
    bunch = datasets.load_digits()
    pixels, labels = bunch.data.astype(np.float32), bunch.target.astype(np.int64)
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, validation, train = np.split(shuffled, [HELD_OUT, HELD_OUT + VALIDATION])
    # One scale for all pixels: a scale for each would blow up the corners, which are almost always empty.
    mean, scale = pixels[train].mean(axis=0), pixels[train].std()
    scaled = (pixels - mean) / scale
    return Digits(
        train_pixels=scaled[train],
        train_labels=labels[train],
        validation_pixels=scaled[validation],
        validation_labels=labels[validation],
        test_pixels=scaled[test],
        test_labels=labels[test],
        test_images=pixels[test].reshape(-1, 8, 8),
    )
