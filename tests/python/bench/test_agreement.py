import numpy as np
import pytest

from tvm_quant.bench.agreement import Agreement, difference_error
from tvm_quant.bench.layers import LayerSteps

SAMPLES = 400


def noisy(seed):
    """Noise whose energy has an exponential distribution over samples: mean and deviation equal."""
    return np.sqrt(np.random.default_rng(seed).exponential(size=(SAMPLES, 1)))


def test_the_error_of_a_difference_is_that_of_two_means():
    error = difference_error(np.zeros((SAMPLES, 1)), noisy(0), noisy(1))
    assert error == pytest.approx(10 / np.log(10) * np.sqrt(2 / SAMPLES), rel=0.2)


def test_errors_common_to_both_cancel():
    one = noisy(0)
    assert difference_error(np.zeros((SAMPLES, 1)), one, 2 * one) == pytest.approx(0, abs=1e-9)


def test_one_sample_has_no_spread():
    one = np.ones((1, 3))
    assert difference_error(one, one + 1, one + 2) == 0


def test_the_largest_difference_is_told_with_its_own_error():
    layers = [
        LayerSteps(node="a", steps=0, share=0.0, elements=100),
        LayerSteps(node="b", steps=1, share=0.02, elements=300),
    ]
    found = Agreement(
        workload="w",
        config="default",
        layers=layers,
        simulated_db=[30.0, 20.0, np.inf],
        integer_db=[30.1, 19.5, np.inf],
        standard_error_db=[9.0, 0.25, 0.0],
    )
    assert (found.difference_db, found.error_db) == (0.5, 0.25)
    assert (found.steps, found.share, found.worst) == (1, 0.015, layers[1])
