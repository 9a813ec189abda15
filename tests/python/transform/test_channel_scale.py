import numpy as np
import pytest

from realized import normal
from tvm_quant.op import ContractionAxes, QuantSpec, simulated_quantize_numpy
from tvm_quant.transform import channel_scale
from tvm_quant.transform.channel_scale import (
    HEADROOM,
    MAX_FACTOR,
    TOO_FEW_VALUES,
    WORTH,
    ChannelRange,
    ElementReader,
    WeightReader,
    best_factors,
    divide_inputs,
)

CONV = ContractionAxes(data=1, output=1, weight_output=0, weight_input=1)
MATMUL = ContractionAxes(data=1, output=1, weight_output=1, weight_input=0)
S8 = QuantSpec(narrow=True)
U8 = QuantSpec(signed=False, symmetric=False)


def channels_of(x):
    """What is known of data (N, C)."""
    return ChannelRange(
        low=np.minimum(x.min(axis=0), 0),
        high=np.maximum(x.max(axis=0), 0),
        second_moment=np.square(x.astype("float64")).mean(axis=0),
        count=len(x),
    )


def matmul_reader(weight, *, per_channel=True):
    return WeightReader(weight=weight, axes=MATMUL, levels=127, per_channel=per_channel)


def data(spread, count=20_000, seed=0):
    """Noise whose channels have these ranges: uniform, as the prediction assumes no shape."""
    rng = np.random.default_rng(seed)
    return np.float32(rng.uniform(-1, 1, (count, len(spread))) * spread)


def measured_error(x, weight, factors, *, per_channel):
    """Energy of the error of a quantized matmul over that of its result."""
    scaled, divided = x * factors, weight / factors[:, None]
    low, high = min(scaled.min(), 0), max(scaled.max(), 0)
    step = (high - low) / 255
    codes = simulated_quantize_numpy(scaled, step, round(-low / step), U8).astype("float64")
    largest = np.abs(divided).max(axis=0, keepdims=True) if per_channel else np.abs(divided).max()
    rounded = simulated_quantize_numpy(divided, largest / 127, 0, S8).astype("float64")
    exact = x.astype("float64") @ weight
    return np.square(codes @ rounded - exact).mean() / np.square(exact).mean()


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(
    "factors", [np.ones(6), 2.0 ** np.arange(6), 2.0 ** np.array([0, 3, -2, 1, 5, 2])]
)
def test_the_predicted_error_is_the_measured_one(factors, per_channel):
    spread = 2.0 ** -np.arange(6.0)
    x, weight = data(spread), normal(6, 400) / spread[:, None].astype("float32")
    channels = channels_of(x)
    step = ((channels.high * factors).max() - (channels.low * factors).min()) / 255
    reader = matmul_reader(weight, per_channel=per_channel)
    predicted = reader.error(factors, channels, step)
    measured = measured_error(x, weight, factors, per_channel=per_channel)
    assert predicted == pytest.approx(measured, rel=0.15)


def test_a_reader_without_weights_sees_the_rounding_of_each_element():
    spread, factors = 2.0 ** -np.arange(4.0), 2.0 ** np.arange(4.0)
    x = data(spread)
    channels = channels_of(x)
    step = ((channels.high * factors).max() - (channels.low * factors).min()) / 255
    rounded = np.round(x * factors / step) * step / factors
    measured = np.square(rounded - x).sum() / np.square(x).sum()
    assert ElementReader().error(factors, channels, step) == pytest.approx(measured, rel=0.05)


def test_best_factors_beat_others_where_they_are_measured():
    spread = 2.0 ** -np.arange(6.0)
    x, weight = data(spread), normal(6, 400) / spread[:, None].astype("float32")
    factors = best_factors(channels_of(x), [matmul_reader(weight)], 256)
    best = measured_error(x, weight, factors, per_channel=True)
    for alpha in (0.0, 0.5):
        other = measured_error(x, weight, spread**-alpha, per_channel=True)
        assert best < WORTH * other


def test_a_reader_that_ignores_small_channels_gets_no_factors():
    spread = 2.0 ** -np.arange(6.0)
    x, weight = data(spread), normal(6, 400) * spread[:, None].astype("float32")
    assert best_factors(channels_of(x), [matmul_reader(weight)], 256) is None


def test_channels_of_about_one_range_get_no_factors():
    x = data(np.linspace(0.8, 1, 6))
    assert best_factors(channels_of(x), [matmul_reader(normal(6, 400))], 256) is None


def test_a_small_gain_does_not_pay(monkeypatch):
    spread = np.array([1.0, 0.6, 0.5])
    x, weight = data(spread), normal(3, 400) * np.float32([[1], [0.6], [0.5]])
    arguments = channels_of(x), [matmul_reader(weight)], 256
    assert best_factors(*arguments) is None
    monkeypatch.setattr(channel_scale, "WORTH", 1.0)
    factors = best_factors(*arguments)
    plain, scaled = (measured_error(x, weight, r, per_channel=True) for r in (np.ones(3), factors))
    assert WORTH * plain < scaled < plain


@pytest.mark.parametrize("extent", [[1.0], [0.0, 0.0]])
def test_nothing_to_scale_gets_no_factors(extent):
    extent = np.array(extent)
    channels = ChannelRange(low=-extent, high=extent, second_moment=extent**2, count=1000)
    assert best_factors(channels, [ElementReader()], 256) is None


def test_silent_channels_keep_their_scale_and_factors_are_bounded():
    extent = np.array([1.0, 0.0, 1e-9, 1e-2])
    channels = ChannelRange(low=np.zeros(4), high=extent, second_moment=extent**2 / 3, count=1000)
    weight = normal(4, 100) / np.maximum(extent, 1e-9)[:, None].astype("float32")
    weight[1] = 0
    factors = best_factors(channels, [matmul_reader(weight)], 256)
    assert factors[1] == 1
    assert factors[0] == 1  # the largest channel sets the grid
    assert factors.max() == MAX_FACTOR
    assert factors[2] == MAX_FACTOR > factors[3] > 1


def test_a_channel_keeps_room_above_what_was_seen():
    extent = np.array([1.0, 0.01])
    channels = ChannelRange(low=np.zeros(2), high=extent, second_moment=extent**2 / 3, count=1000)
    weight = normal(2, 100) / extent[:, None].astype("float32")
    factors = best_factors(channels, [matmul_reader(weight)], 256)
    assert extent[1] * factors[1] <= extent[0] / HEADROOM * (1 + 1e-9)


def test_few_values_of_a_channel_say_too_little_about_its_range():
    extent = np.array([1.0, 0.01])
    weight = normal(2, 100) / extent[:, None].astype("float32")
    few, enough = (
        ChannelRange(low=np.zeros(2), high=extent, second_moment=extent**2 / 3, count=count)
        for count in (TOO_FEW_VALUES, TOO_FEW_VALUES + 1)
    )
    assert best_factors(few, [matmul_reader(weight)], 256) is None
    assert best_factors(enough, [matmul_reader(weight)], 256) is not None


def test_several_readers_share_one_choice():
    """A reader that needs the large channel alone can outvote none, but is counted."""
    spread = 2.0 ** -np.arange(6.0)
    x = data(spread)
    needs = matmul_reader(normal(6, 50) / spread[:, None].astype("float32"))
    alone = best_factors(channels_of(x), [needs], 256)
    together = best_factors(channels_of(x), [needs, ElementReader()], 256)
    assert alone is not None
    assert together is not None


def test_all_zero_data_or_weights_have_no_error():
    channels = ChannelRange(low=np.zeros(2), high=np.ones(2), second_moment=np.zeros(2), count=1000)
    assert ElementReader().error(np.ones(2), channels, 0.1) == 0
    assert matmul_reader(normal(2, 3)).error(np.ones(2), channels, 0.1) == 0
    channels = ChannelRange(low=np.zeros(2), high=np.ones(2), second_moment=np.ones(2), count=1000)
    assert matmul_reader(np.zeros((2, 3), "float32")).error(np.ones(2), channels, 0.1) == 0


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        (CONV, (2, 4, 3, 3), lambda w, f: w / f.reshape(1, 4, 1, 1)),
        (MATMUL, (4, 5), lambda w, f: w / f.reshape(4, 1)),
        (
            ContractionAxes(data=1, output=1, weight_output=0, weight_input=1, groups=4),
            (8, 1, 3, 3),  # two outputs for each input
            lambda w, f: w / np.repeat(f, 2).reshape(8, 1, 1, 1),
        ),
        (
            ContractionAxes(data=1, output=1, weight_output=0, weight_input=1, groups=2),
            (6, 2, 3, 3),
            lambda w, f: w / np.repeat(f.reshape(2, 2), 3, axis=0).reshape(6, 2, 1, 1),
        ),
        (
            ContractionAxes(
                data=1, output=1, weight_output=1, weight_input=0, groups=2, transposed=True
            ),
            (4, 3, 2, 2),
            lambda w, f: w / f.reshape(4, 1, 1, 1),
        ),
        (
            ContractionAxes(data=3, output=3, weight_output=3, weight_input=2),
            (3, 3, 4, 5),
            lambda w, f: w / f.reshape(1, 1, 4, 1),
        ),
    ],
)
def test_divide_inputs_divides_the_slice_of_each_input_channel(axes, shape, expected):
    weight, factors = normal(*shape), np.array([1.0, 2, 4, 8])
    divided = divide_inputs(weight, factors, axes)
    assert divided.dtype == np.float32
    np.testing.assert_array_equal(divided, expected(weight, factors))
