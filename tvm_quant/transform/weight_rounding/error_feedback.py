"""Rounding weights so that their products stay right, not the weights themselves.

    minimise  d' C d  with  d = code * step - w,  for each row w

where C is the covariance of what the row is multiplied with. Inputs are rounded one after the
other; the error of each is made up for by those that are still to come. Where that is no better
than rounding each to nearest, as when nothing is correlated, the nearest codes stay.

Source: Frantar et al., "GPTQ", ICLR 2023, arXiv:2210.17323, section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dtrtri

Array = npt.NDArray[Any]

#: Added to the diagonal of the covariance, in units of its mean: what few samples cannot tell.
DAMPING = 0.01
#: Inputs that are rounded one by one before their errors are carried over by matrix products.
AT_ONCE = 8


def round_to_nearest(weight: Array, step: Array, low: Array, high: Array) -> Array:
    """Nearest codes, ties to even; arguments as for `round_with_feedback`."""
    return np.asarray(np.clip(np.rint(weight / step), low, high))


def round_with_feedback(
    weight: Array, covariance: Array, step: Array, low: Array, high: Array
) -> Array:
    """Codes of the weights of B blocks of R rows over K inputs.

    Args:
        weight: float64, (B, K, R).
        covariance: of the inputs, float64, (B, K, K).
        step: > 0, (B, 1, R).
        low, high: smallest and largest codes, (B, 1, R).

    Returns:
        Whole numbers, float64, (B, K, R). No row has more error than its nearest codes have.

    >>> weight, one = np.array([[[0.4], [0.4]]]), np.ones((1, 1, 1))
    >>> alike = np.ones((1, 2, 2))  # the sum counts: 0.8
    >>> round_with_feedback(weight, alike, one, -9 * one, 9 * one).reshape(-1).tolist()
    [0.0, 1.0]
    """
    return Feedback(covariance).codes(weight, step, low, high)


class Feedback:
    """What the inputs of B blocks tell about their errors: computed once for any number of rows.

    Args:
        covariance: of the inputs, float64, (B, K, K).
    """

    def __init__(self, covariance: Array):
        self._damped = _damped(covariance)
        self._order = np.argsort(-np.einsum("bkk->bk", self._damped), axis=1, kind="stable")
        order = self._order[:, :, None]
        columns = np.take_along_axis(self._damped, order.swapaxes(1, 2), 2)
        self._factor = _inverse_factor(np.take_along_axis(columns, order, 1))

    def codes(self, weight: Array, step: Array, low: Array, high: Array) -> Array:
        """Codes of some rows; arguments and result as of `round_with_feedback`."""
        order = self._order[:, :, None]
        ordered = np.take_along_axis(weight, order, 1)
        rounding = _Rounding(self._factor, ordered, step, low, high)
        codes = np.empty_like(weight)
        np.put_along_axis(codes, order, rounding.codes, 1)
        nearest = round_to_nearest(weight, step, low, high)
        better = rounding.error < _error(nearest * step - weight, self._damped)
        return np.where(better[:, None], codes, nearest)


def output_error(difference: Array, covariance: Array) -> Array:
    """Mean square error that each row adds to its output, as far as samples tell: (B, R).

    Args:
        difference: rounded weights less the weights, (B, K, R).
        covariance: of the inputs, (B, K, K).
    """
    mean = np.einsum("bkk->b", covariance)[:, None] / covariance.shape[1]
    return _error(difference, _damped(covariance)) * np.where(mean > 0, mean, 1.0)


def _damped(covariance: Array) -> Array:
    """In units of its mean variance, with a diagonal that makes it positive definite."""
    inputs = covariance.shape[1]
    mean = np.einsum("bkk->b", covariance)[:, None, None] / inputs
    return np.asarray(covariance / np.where(mean > 0, mean, 1.0) + DAMPING * np.eye(inputs))


class _Rounding:
    """Rounds the inputs from first to last.

    Attributes:
        codes: (B, K, R).
        error: what is minimised, of each row, (B, R). The errors along the way, each in units of
            what is left of its input when those before are known, add up to it.
    """

    def __init__(self, factor: Array, weight: Array, step: Array, low: Array, high: Array):
        self._factor = factor
        self._weight, self._grid = weight, (step, low, high)
        self.codes, self._errors = np.empty_like(weight), np.empty_like(weight)
        self._round(0, weight.shape[1])
        self.error = np.einsum("bkr,bkr->br", self._errors, self._errors)

    def _round(self, start: int, stop: int) -> None:
        """Inputs from start to stop, halves at a time: errors are carried over by products."""
        if stop - start <= AT_ONCE:
            for k in range(start, stop):
                self._round_one(k, stop)
            return
        middle = (start + stop) // 2
        self._round(start, middle)
        errors = self._errors[:, start:middle]
        self._weight[:, middle:stop] -= self._factor[:, middle:stop, start:middle] @ errors
        self._round(middle, stop)

    def _round_one(self, k: int, stop: int) -> None:
        here = self._weight[:, k : k + 1]
        code = round_to_nearest(here, *self._grid)
        error = (here - code * self._grid[0]) / self._factor[:, k : k + 1, k : k + 1]
        self.codes[:, k : k + 1], self._errors[:, k : k + 1] = code, error
        self._weight[:, k + 1 : stop] -= self._factor[:, k + 1 : stop, k : k + 1] * error


def _inverse_factor(covariance: Array) -> Array:
    """The lower triangle L of L L' = inverse, (B, K, K).

    From last to first, covariance = U U' with an upper triangle, so that L = inverse of U'.
    """
    backwards = np.linalg.cholesky(covariance[:, ::-1, ::-1])[:, ::-1, ::-1]
    return np.stack([dtrtri(upper)[0].T for upper in backwards])


def _error(difference: Array, covariance: Array) -> Array:
    """What is minimised, of each row: (B, R)."""
    return np.asarray(np.einsum("bkr,bkr->br", difference, covariance @ difference))
