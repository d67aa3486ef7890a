"""The embedded classification data: scikit-learn's handwritten digits as JPEG files in the ImageNet folder layout.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998), 1,797 images of 8x8 pixels, as
`sklearn.datasets.load_digits` ships them. Samples 0, 5, 10, … are held out for validation.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from training.data.folder import write_manifest, write_once

SIDE_PX = 64
HELD_OUT_EVERY = 5
SOURCE_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
"""Of the pixel and label arrays; scikit-learn promises these data, the digest makes sure of it."""


def prepare(root: Path) -> Path:
    """Write the data set to `root` unless it is there, whole; returns the manifest.

    Raises:
        RuntimeError: the installed scikit-learn ships other digits than the ones this project was measured with.
    """

    def write(partial: Path) -> None:
        _write_images(partial)
        write_manifest(partial, name="digits")

    return write_once(root, write)


def load_verified() -> tuple[np.ndarray, np.ndarray]:
    """Pixels [1797, 8, 8], 0 to 16, and labels [1797].

    Raises:
        RuntimeError: the installed scikit-learn ships other digits.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    digest = hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()
    if digest != SOURCE_SHA256:
        raise RuntimeError(f"scikit-learn's digits have digest {digest}, expected {SOURCE_SHA256}")
    return pixels, labels


def _write_images(root: Path) -> None:
    from PIL import Image

    pixels, labels = load_verified()
    for index, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        split = "val" if index % HELD_OUT_EVERY == 0 else "train"
        folder = root / split / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        # Values 0..16 to 0..255.
        picture = Image.fromarray(np.minimum(image.astype(np.uint16) * 16, 255).astype(np.uint8))
        picture.resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC).save(folder / f"{index:04d}.jpg", quality=95)
