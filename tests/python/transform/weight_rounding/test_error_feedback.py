import itertools

import numpy as np
import pytest

from tvm_quant.transform.weight_rounding import (
    error_feedback,
    round_to_nearest,
    round_with_feedback,
)


def problem(blocks=5, inputs=6, rows=3, seed=0):
    """Weights, the covariance of inputs that are alike, steps."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(0, 3, (blocks, inputs, rows))
    shared, own = rng.normal(size=(blocks, 200, 1)), rng.normal(size=(blocks, 200, inputs))
    data = shared + 0.3 * own
    covariance = data.swapaxes(1, 2) @ data / 200
    return weight, covariance, rng.uniform(0.5, 1.5, (blocks, 1, rows))


def bounds(weight, largest=99.0):
    return np.full_like(weight[:, :1], -largest), np.full_like(weight[:, :1], largest)


def error(codes, weight, covariance, step):
    difference = codes * step - weight
    return np.einsum("bkr,bkl,blr->br", difference, covariance, difference)


def test_nothing_is_worse_than_nearest_and_most_is_near_the_best():
    weight, covariance, step = problem(blocks=20, inputs=4)
    low, high = bounds(weight)
    nearest = round_to_nearest(weight, step, low, high)
    codes = round_with_feedback(weight, covariance, step, low, high)
    below = np.floor(weight / step)
    choices = np.array(list(itertools.product((-1, 0, 1, 2), repeat=4)))
    best = np.min(
        [error(below + choice[:, None], weight, covariance, step) for choice in choices], axis=0
    )
    plain, found = (error(c, weight, covariance, step) for c in (nearest, codes))
    assert (found <= plain + 1e-3 * plain.max()).all()
    assert found.sum() < 2 * best.sum() < 0.6 * plain.sum()


def test_codes_stay_within_their_bounds():
    weight, covariance, step = problem()
    low, high = bounds(weight, 2.0)
    codes = round_with_feedback(weight, covariance, step, low, high)
    assert codes.min() == -2 and codes.max() == 2
    np.testing.assert_array_equal(codes, np.rint(codes))


@pytest.mark.parametrize("covariance", [np.zeros((6, 6)), np.eye(6), np.diag(np.arange(6.0))])
def test_inputs_that_do_not_move_together_are_rounded_to_nearest(covariance):
    weight, _, step = problem(blocks=1)
    arguments = step, *bounds(weight)
    np.testing.assert_array_equal(
        round_with_feedback(weight, covariance[None], *arguments),
        round_to_nearest(weight, *arguments),
    )


def test_errors_that_are_carried_over_later_give_the_same_codes(monkeypatch):
    weight, covariance, step = problem(inputs=20)
    arguments = weight, covariance, step, *bounds(weight)
    at_once = round_with_feedback(*arguments)
    monkeypatch.setattr(error_feedback, "AT_ONCE", 100)
    np.testing.assert_array_equal(round_with_feedback(*arguments), at_once)


def test_blocks_do_not_know_each_other():
    weight, covariance, step = problem()
    arguments = weight, covariance, step, *bounds(weight)
    together = round_with_feedback(*arguments)
    for index in range(len(weight)):
        alone = round_with_feedback(*(array[index : index + 1] for array in arguments))
        np.testing.assert_array_equal(alone[0], together[index])
