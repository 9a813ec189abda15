"""Which samples are outliers: their largest magnitude lies far beyond that of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.statistics.tensor import TensorStatistics

Array = npt.NDArray[Any]

FEWEST_SAMPLES = 4
FENCE = 3.0
MARGIN = 4.0
SHARE = 0.05


def without_outliers(stats: TensorStatistics) -> TensorStatistics:
    """The statistics without outlier samples, as the default estimator judges them."""
    far = outlier_samples(stats)
    return stats.without(far) if far.any() else stats


def outlier_samples(
    stats: TensorStatistics, *, fence: float = FENCE, margin: float = MARGIN, share: float = SHARE
) -> Array:
    """Samples whose largest magnitude is an outlier among those of all samples.

    Args:
        stats: of one tensor.
        fence, margin, share: see `outlier_magnitudes`.

    Returns:
        Whether each sample is an outlier: bool, (S,).
    """
    reach = np.maximum(np.abs(stats.sample_min), np.abs(stats.sample_max)).astype(np.float64)
    return outlier_magnitudes(reach, fence=fence, margin=margin, share=share)


def outlier_magnitudes(
    reach: Array, *, fence: float = FENCE, margin: float = MARGIN, share: float = SHARE
) -> Array:
    """Which magnitudes lie beyond the fence, median + max(fence * IQR, margin).

    Distances are in octaves (log2), so the scale of the tensor does not matter. With fewer than
    four samples there is nothing to compare with, and what happens in more than `share` of the
    samples (but at least one) is no exception: then none is an outlier.

    Args:
        reach: largest magnitude of each sample, >= 0, (S,).
        fence: in interquartile ranges.
        margin: least distance from the median, in octaves.
        share: largest share of samples that may be outliers.

    Returns:
        Whether each is an outlier: bool, (S,).

    Source: Tukey, "Exploratory Data Analysis", 1977, section 2C, on logarithms.

    >>> outlier_magnitudes(np.array([1.0, 1.2, 0.8, 1.1, 1000.0])).tolist()
    [False, False, False, False, True]
    """
    none = np.zeros(len(reach), bool)
    if len(reach) < FEWEST_SAMPLES or not reach.any():
        return none
    octaves = np.log2(np.maximum(reach, reach[reach > 0].min()))
    lower, median, upper = np.percentile(octaves, [25, 50, 75])
    far = octaves > median + max(fence * (upper - lower), margin)
    return far if far.sum() <= max(share * len(reach), 1) else none
