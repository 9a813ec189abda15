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

Array = npt.NDArray[Any]

#: Added to the diagonal of the covariance, in units of its mean: what few samples cannot tell.
DAMPING = 0.01
#: Inputs after which the errors are carried over to all later ones, in one matrix product.
LAZY = 64


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
    damped = _damped(covariance)
    order = np.argsort(-np.einsum("bkk->bk", damped), axis=1, kind="stable")[:, :, None]
    columns = np.take_along_axis(damped, order.swapaxes(1, 2), 2)
    ordered = np.take_along_axis(columns, order, 1)
    codes = np.empty_like(weight)
    found = _in_order(ordered, np.take_along_axis(weight, order, 1), step, low, high)
    np.put_along_axis(codes, order, found, 1)
    nearest = round_to_nearest(weight, step, low, high)
    better = _error(codes * step - weight, damped) < _error(nearest * step - weight, damped)
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


def _in_order(covariance: Array, weight: Array, step: Array, low: Array, high: Array) -> Array:
    """Codes of the inputs from first to last."""
    factor = np.linalg.cholesky(np.linalg.inv(covariance))
    weight, codes = weight.copy(), np.empty_like(weight)
    inputs = weight.shape[1]
    for start in range(0, inputs, LAZY):
        stop = min(start + LAZY, inputs)
        errors = np.empty_like(weight[:, start:stop])
        for k in range(start, stop):
            here = weight[:, k : k + 1]
            codes[:, k : k + 1] = round_to_nearest(here, step, low, high)
            error = (here - codes[:, k : k + 1] * step) / factor[:, k : k + 1, k : k + 1]
            weight[:, k:stop] -= factor[:, k:stop, k : k + 1] * error
            errors[:, k - start] = error[:, 0]
        weight[:, stop:] -= factor[:, stop:, start:stop] @ errors
    return codes


def _error(difference: Array, covariance: Array) -> Array:
    """What is minimised, of each row: (B, R)."""
    return np.asarray(np.einsum("bkr,bkr->br", difference, covariance @ difference))
