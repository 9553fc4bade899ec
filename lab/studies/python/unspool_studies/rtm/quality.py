"""What a lossy history does to an image: compared with that of the same job without a loss."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from unspool.errors import MissingLibraryError
from unspool_studies.codecs import quality
from unspool_studies.rtm.model import Floats

__all__ = ["ImageQuality", "image_quality"]

#: Verdicts, by the relative error of the image: at most so much for each of them.
VERDICTS = ((1e-3, "same to the eye"), (1e-2, "good"), (5e-2, "visible"), (2e-1, "poor"))


@dataclass(frozen=True)
class ImageQuality:
    """Figures over the whole finished image, against the image of an uncompressed history.

    Attributes:
        rel_l2: the norm of the difference, divided by that of the image: the relative error.
        max_error: the largest difference, divided by the largest magnitude of the image.
        psnr: in dB, the image's range being the peak.
        cosine: of the angle between both images.
        ssim: the structural similarity; None where scikit-image is not installed.
    """

    rel_l2: float
    max_error: float
    psnr: float
    cosine: float
    ssim: float | None

    @property
    def verdict(self) -> str:
        """In words: `"RUINED"` where the error is above a fifth of the image."""
        if not math.isfinite(self.rel_l2):
            return "RUINED"
        return next((word for most, word in VERDICTS if self.rel_l2 <= most), "RUINED")

    def as_dict(self) -> dict[str, Any]:
        """The figures, ready for `json.dump`."""
        found = {**asdict(self), "verdict": self.verdict}
        return {name: None if _endless(value) else value for name, value in found.items()}


def _endless(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def image_quality(image: Floats, wanted: Floats) -> ImageQuality:
    """Compares a finished image with the one that it should be.

    An image with values that are not finite is infinitely far off.
    """
    if not np.isfinite(image).all():
        return ImageQuality(math.inf, math.inf, -math.inf, 0.0, None)
    try:
        found = quality(wanted, image, ssim=True)
    except MissingLibraryError:
        found = quality(wanted, image)
    one, other = (part.astype(np.float64).ravel() for part in (image, wanted))
    power = float(np.linalg.norm(one) * np.linalg.norm(other))
    cosine = float(one @ other) / power if power else 1.0
    peak = float(np.abs(wanted).max())
    largest = found.max_error / peak if peak else 0.0
    return ImageQuality(found.rel_l2, largest, found.psnr, cosine, found.ssim)
