"""Quantize a network by hand: all the arithmetic of int8 inference, in NumPy alone.

    python tutorials/01_quantize_by_hand.py [--picture grid.png]

Read it from top to bottom; every chapter is a function that prints what it finds and asserts what
it claims. At the end a small network that reads handwritten digits runs on integers only, and we
know of every number in it where it comes from. `tvm_quant` does nothing else, to any network.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

DIGITS = Path(__file__).parents[1] / "tvm_quant" / "demo" / "digits.npz"


# ------------------------------------------------------------------------------------------------
# Chapter 1. A float network.
#
# Two convolutions with filters drawn at random and a last layer found by least squares: for digits
# that is enough, and it needs no training loop. Behind each convolution stands a batch norm,
#
#     y = gamma * (x - mean) / std + beta          per channel
#
# with constants only, so it can be folded into the convolution before it:
#
#     weight' = weight * gamma / std        bias' = beta - mean * gamma / std
#
# Do this first, always. It removes an operator, and it changes the weights that get quantized: each
# output channel is scaled by a factor of its own, so that their ranges come to differ widely.
# ------------------------------------------------------------------------------------------------


@dataclass
class Layer:
    """weight: float32, (O, I, 3, 3) for a convolution, (O, I) for a dense layer; bias: (O,)."""

    name: str
    weight: np.ndarray
    bias: np.ndarray
    stride: int = 1
    relu: bool = True


def convolve(x: np.ndarray, weight: np.ndarray, stride: int, padding_value: int = 0) -> np.ndarray:
    """3 x 3 convolution, padded by one pixel; x: (N, I, H, W), any dtype -> (N, O, H', W')."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=padding_value)
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nihwyx,oiyx->nohw", windows, weight, optimize=True)


def per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """Shape (C,) values so that they broadcast along axis 1 of a tensor of that rank."""
    return np.reshape(values, (-1,) + (1,) * (rank - 2))


def run_float(layers: list[Layer], x: np.ndarray) -> list[np.ndarray]:
    """Input and all layer outputs, in float32."""
    outputs = [x]
    for layer in layers:
        if layer.weight.ndim == 4:
            y = convolve(outputs[-1], layer.weight, layer.stride)
        else:
            y = outputs[-1].reshape(len(x), -1) @ layer.weight.T
        y = y + per_channel(layer.bias, y.ndim)
        outputs.append(np.maximum(y, 0) if layer.relu else y)
    return outputs


def make_network(images: np.ndarray, labels: np.ndarray) -> list[Layer]:
    """Random convolutions with folded batch norms, and a last layer by ridge regression."""
    rng = np.random.default_rng(1)
    # Each image and its four neighbours by a one-pixel shift: five times the data for nothing.
    shifted = [np.roll(images, step, axis) for step in (-1, 1) for axis in (2, 3)]
    x, labels = np.concatenate([images, *shifted]), np.tile(labels, 5)
    layers = []
    for name, inputs, outputs, stride in (("conv1", 1, 16, 1), ("conv2", 16, 32, 2)):
        weight = rng.normal(size=(outputs, inputs, 3, 3)).astype("float32")
        gamma = np.exp(0.8 * rng.normal(size=outputs))  # trained ones spread about as widely
        y = convolve(x, weight, stride)
        factor = gamma / y.std((0, 2, 3))
        bias = (-y.mean((0, 2, 3)) * factor).astype("float32")
        folded = (weight * factor[:, None, None, None]).astype("float32")
        layer = Layer(name, folded, bias, stride)
        layers.append(layer)
        x = run_float([layer], x)[1]
    features = x.reshape(len(x), -1).astype("float64")
    wanted = np.eye(10)[labels] - 0.1
    gram = features.T @ features + 30 * np.eye(features.shape[1])
    weight = np.linalg.solve(gram, features.T @ wanted).T
    layers.append(Layer("dense", weight.astype("float32"), np.zeros(10, "float32"), relu=False))
    return layers


def chapter_1(layers: list[Layer], images: np.ndarray, labels: np.ndarray) -> float:
    title("1. A float network, batch norms folded")
    accuracy = float((run_float(layers, images)[-1].argmax(1) == labels).mean())
    for layer in layers:
        largest = np.abs(layer.weight).reshape(len(layer.weight), -1).max(1)
        print(
            f"   {layer.name:6} weight {layer.weight.shape!s:15} largest |w| of a channel: "
            f"{largest.min():.3f} to {largest.max():.3f}"
        )
    print(f"   accuracy in float32: {accuracy:.1%}")
    assert accuracy > 0.9
    return accuracy


# ------------------------------------------------------------------------------------------------
# Chapter 2. The grid.
#
# An 8-bit integer q stands for a real number on an evenly spaced grid:
#
#     real = scale * (q - zero_point)              q = clip(round(real / scale) + zero_point)
#
# `scale` is the distance between neighbours. `zero_point` is the integer that stands for exactly
# 0.0: zero has to lie on the grid, because padding and ReLU produce it all the time. Inside the
# range the error is at most half a step; outside, values are clipped to the last grid point.
# ------------------------------------------------------------------------------------------------


@dataclass
class Grid:
    """scale > 0 and zero point, numbers or one per channel; integers q in [low, high]."""

    scale: np.ndarray
    zero_point: int
    low: int
    high: int

    def quantize(self, real: np.ndarray) -> np.ndarray:
        # np.rint rounds halves to even, as the CPU's own conversion does.
        return np.clip(np.rint(real / self.scale) + self.zero_point, self.low, self.high).astype(
            int
        )

    def real(self, q: np.ndarray) -> np.ndarray:
        # In uint8 itself, q - zero_point would wrap around below zero.
        return self.scale * (q.astype(int) - self.zero_point)

    def simulate(self, real: np.ndarray) -> np.ndarray:
        """Round to the grid and come back: the float number that the integer stands for."""
        return self.real(self.quantize(real))


def uint8_grid(low: float, high: float) -> Grid:
    """Grid for activations between `low` and `high`: all 256 values, zero among them."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    return Grid(np.float64(scale), round(-low / scale), 0, 255)


def int8_grid(weight: np.ndarray, channels: bool) -> Grid:
    """Grid for weights: symmetric, so that zero_point = 0; -128 is left out to keep it balanced."""
    axes = tuple(range(1, weight.ndim)) if channels else None
    largest = np.abs(weight).max(axis=axes, keepdims=True)
    return Grid(largest / 127, 0, -127, 127)


def sqnr(reference: np.ndarray, approximation: np.ndarray) -> float:
    """Signal to quantization noise ratio in dB: 6 dB more is half the error."""
    noise = ((reference - approximation) ** 2).sum()
    return float(10 * np.log10((reference**2).sum() / noise))


def chapter_2() -> None:
    title("2. The grid")
    grid = uint8_grid(-1.0, 3.0)
    values = np.array([-2.0, -1.0, -0.004, 0.0, 0.5, 3.0])
    for value, q in zip(values, grid.quantize(values), strict=True):
        print(f"   {value:6.3f} -> {q:3d} -> {grid.real(q):6.3f}")
    inside = np.linspace(-1, 3, 10_001)
    worst = np.abs(grid.simulate(inside) - inside).max()
    print(f"   scale {grid.scale:.5f}, zero point {grid.zero_point}, worst error {worst:.5f}")
    # The zero point was rounded, so the grid may miss an end of the range by half a step.
    assert worst <= grid.scale * 1.01
    assert grid.simulate(np.zeros(1))[0] == 0.0
    bits = [
        sqnr(inside, Grid(4 / (2**n - 1), 2 ** (n - 2), 0, 2**n - 1).simulate(inside))
        for n in (4, 8)
    ]
    print(f"   SQNR with 4 bits {bits[0]:.1f} dB, with 8 bits {bits[1]:.1f} dB: 6 dB a bit")
    assert 5.5 < (bits[1] - bits[0]) / 4 < 6.5


# ------------------------------------------------------------------------------------------------
# Chapter 3. Weights: one scale, or one per channel.
#
# Weights are known, so their range is their largest magnitude. With one scale for the whole tensor
# the largest channel decides for all: a channel a hundred times smaller keeps two or three of the
# 255 values. One scale per output channel costs nothing at run time, since each output channel is
# rescaled anyway (chapter 6). Per *input* channel would: the scale could not leave the sum.
# ------------------------------------------------------------------------------------------------


def chapter_3(layers: list[Layer]) -> None:
    title("3. Weight scales, per tensor and per channel (SQNR of the worst channel, dB)")
    for layer in layers:
        one, many = (int8_grid(layer.weight, c).simulate(layer.weight) for c in (False, True))
        worst = [
            min(sqnr(w, q) for w, q in zip(layer.weight, w_q, strict=True)) for w_q in (one, many)
        ]
        print(f"   {layer.name:6} per tensor {worst[0]:5.1f}    per channel {worst[1]:5.1f}")
        assert worst[1] > worst[0]
        assert worst[1] > 35


# ------------------------------------------------------------------------------------------------
# Chapter 4. Activations: calibration.
#
# How large activations get is known only by looking. So the float network runs on a few samples
# (labels do not matter), and a range is chosen for each tensor. Minimum and maximum never clip, and
# one bad value ruins them: a range a thousand times too wide leaves all else on one grid point.
# Choosing the range with the least mean squared error trades a little clipping for a finer grid: a
# gain with few bits, hardly any with eight. Real estimators keep histograms instead of the values,
# so that memory does not grow with the data.
# ------------------------------------------------------------------------------------------------


def minmax_range(samples: np.ndarray) -> Grid:
    return uint8_grid(samples.min(), samples.max())


def mse_range(samples: np.ndarray) -> Grid:
    """Try ever narrower ranges and keep the one with the least mean squared error."""
    shrinks = 2.0 ** -np.arange(0, 12, 0.25)
    grids = [uint8_grid(samples.min() * s, samples.max() * s) for s in shrinks]
    errors = [((g.simulate(samples) - samples) ** 2).mean() for g in grids]
    return grids[int(np.argmin(errors))]


def percentile_range(samples: np.ndarray) -> Grid:
    return uint8_grid(*np.percentile(samples, [0.01, 99.99]))


def chapter_4(activations: np.ndarray) -> None:
    title("4. Ranges of an activation, without and with one outlier (SQNR of the rest, dB)")
    dirty = activations.ravel().copy()
    dirty[0] = 1e4
    rest = activations.ravel()[1:]
    found = {}
    for estimate in (minmax_range, percentile_range, mse_range):
        clean, spoilt = (sqnr(rest, estimate(s).simulate(rest)) for s in (activations, dirty))
        found[estimate.__name__] = spoilt
        print(
            f"   {estimate.__name__:16} clean {clean:5.1f}    with one value of 1e4 {spoilt:5.1f}"
        )
        assert clean > 30
    print(
        "   the mean squared error is lost too: one clipped outlier weighs more than all the rest"
    )
    assert found["minmax_range"] < 5
    assert found["percentile_range"] > 30


# ------------------------------------------------------------------------------------------------
# Chapter 5. A convolution on integers.
#
# Put real = scale * (q - zero_point) into the sum over the window and take the scales out:
#
#     sum x * w  =  s_x * s_w * sum (q_x - z_x) * q_w
#                =  s_x * s_w * ( sum q_x * q_w  -  z_x * sum q_w )
#
# The second sum holds only weights, so it is a constant per output channel and joins the bias, an
# int32 on the same fine grid s_x * s_w:
#
#     bias_q = round(bias / (s_x * s_w)) - z_x * sum q_w
#
# What is left at run time is a convolution of 8-bit integers. Its sum needs more than 8 bits: each
# product is below 2**15, so an int32 holds any sum of fewer than 65,000 of them exactly. Padding is
# with z_x, the integer that stands for zero.
# ------------------------------------------------------------------------------------------------


@dataclass
class IntegerLayer:
    """What a device stores: weight int8, bias int32, and the grids around it."""

    layer: Layer
    input: Grid
    weight_grid: Grid
    output: Grid
    weight: np.ndarray
    bias: np.ndarray

    @property
    def multiplier(self) -> np.ndarray:
        """(O,): factor from the accumulator's grid to the output's; see chapter 6."""
        return self.input.scale * self.weight_grid.scale.ravel() / self.output.scale


def quantize_layer(layer: Layer, x: Grid, y: Grid, channels: bool) -> IntegerLayer:
    grid = int8_grid(layer.weight, channels)
    weight = grid.quantize(layer.weight)
    fine = x.scale * np.broadcast_to(grid.scale.ravel(), len(weight))
    sums = weight.reshape(len(weight), -1).sum(1)
    bias = np.rint(layer.bias / fine).astype(int) - x.zero_point * sums
    assert np.abs(bias).max() < 2**31, "a bias that int32 cannot hold needs a larger weight scale"
    return IntegerLayer(layer, x, grid, y, weight.astype("int8"), bias.astype("int32"))


def accumulate(layer: IntegerLayer, q: np.ndarray) -> np.ndarray:
    """uint8 in, int32 out: exact."""
    weight, q = layer.weight.astype("int32"), q.astype("int32")
    if weight.ndim == 4:
        total = convolve(q, weight, layer.layer.stride, padding_value=layer.input.zero_point)
    else:
        total = q.reshape(len(q), -1) @ weight.T
    return total + per_channel(layer.bias, total.ndim)


def chapter_5(layer: IntegerLayer, x: np.ndarray) -> None:
    title("5. A convolution on integers")
    q = layer.input.quantize(x).astype("uint8")
    total = accumulate(layer, q)
    scale = per_channel(layer.input.scale * layer.weight_grid.scale.ravel(), 4)
    # The same in float, with the numbers that the integers stand for.
    simulated = convolve(
        layer.input.real(q), layer.weight_grid.real(layer.weight), layer.layer.stride
    )
    simulated = simulated + per_channel(layer.layer.bias, 4)
    error = np.abs(scale * total - simulated).max()
    print(
        f"   uint8 {q.shape} * int8 {layer.weight.shape} -> int32 in [{total.min()}, {total.max()}]"
    )
    print(f"   farthest from the same sum in float: {error:.1e}, half a step of the bias is")
    print(f"   {scale.max() / 2:.1e}: only the bias was rounded, the sum itself is exact")
    assert error <= scale.max() / 2 * 1.001


# ------------------------------------------------------------------------------------------------
# Chapter 6. Requantize: back to 8 bits.
#
# The next layer wants uint8 on its own grid. One multiplication per value does it:
#
#     q_y = clip(round(accumulator * m) + z_y)          m = s_x * s_w / s_y, one per output channel
#
# ReLU is free: everything below zero is everything below z_y. A range that was profiled after the
# ReLU has z_y = 0, and then the clip to uint8 is the ReLU. A device without float units writes
# m = m0 * 2**-31 * 2**shift with an integer m0 in [2**30, 2**31): a 64-bit product and a shift.
# ------------------------------------------------------------------------------------------------


def requantize(layer: IntegerLayer, total: np.ndarray) -> np.ndarray:
    scaled = np.rint(total * per_channel(layer.multiplier, total.ndim)) + layer.output.zero_point
    low = layer.output.zero_point if layer.layer.relu else layer.output.low
    return np.clip(scaled, low, layer.output.high).astype("uint8")


def requantize_fixed_point(layer: IntegerLayer, total: np.ndarray) -> np.ndarray:
    """The same with integers alone."""
    mantissa, exponent = np.frexp(layer.multiplier)  # mantissa in [0.5, 1)
    m0 = np.rint(mantissa * 2**31).astype("int64")
    shift = per_channel(31 - exponent, total.ndim).astype("int64")
    product = total.astype("int64") * per_channel(m0, total.ndim)
    rounded = (product + (np.int64(1) << (shift - 1))) >> shift
    low = layer.output.zero_point if layer.layer.relu else layer.output.low
    return np.clip(rounded + layer.output.zero_point, low, layer.output.high).astype("uint8")


def chapter_6(layer: IntegerLayer, x: np.ndarray) -> None:
    title("6. Requantize: int32 to uint8")
    total = accumulate(layer, layer.input.quantize(x))
    by_float, by_integer = requantize(layer, total), requantize_fixed_point(layer, total)
    m = layer.multiplier
    differ = by_float != by_integer
    farthest = np.abs(by_float.astype(int) - by_integer).max()
    print(
        f"   multipliers from {m.min():.2e} to {m.max():.2e}, "
        f"output zero point {layer.output.zero_point}"
    )
    print(
        f"   float and fixed point differ in {differ.sum()} of {differ.size} values, "
        f"by {farthest} at most"
    )
    assert farthest <= 1
    assert differ.mean() < 1e-3


# ------------------------------------------------------------------------------------------------
# Chapter 7. The whole network on integers.
#
# Calibrate, quantize each layer, and run: uint8 flows from layer to layer, and the only float
# numbers are the input before its quantization and the logits after the last layer.
# ------------------------------------------------------------------------------------------------


def quantize_network(
    layers: list[Layer], samples: np.ndarray, channels: bool
) -> list[IntegerLayer]:
    grids = [minmax_range(tensor) for tensor in run_float(layers, samples)]
    return [
        quantize_layer(layer, x, y, channels)
        for layer, x, y in zip(layers, grids[:-1], grids[1:], strict=True)
    ]


def run_integers(layers: list[IntegerLayer], x: np.ndarray) -> np.ndarray:
    q = layers[0].input.quantize(x).astype("uint8")
    for layer in layers:
        q = requantize(layer, accumulate(layer, q))
    return layers[-1].output.real(q)


def run_simulated(layers: list[IntegerLayer], x: np.ndarray) -> np.ndarray:
    """The same in float: every tensor is rounded to its grid, nothing is an integer.

    Tools train and debug with this. It follows the integers closely; the integers are the truth.
    """
    x = layers[0].input.simulate(x)
    for layer in layers:
        weight = layer.weight_grid.real(layer.weight)
        rounded = Layer(
            layer.layer.name, weight, layer.layer.bias, layer.layer.stride, layer.layer.relu
        )
        x = layer.output.simulate(run_float([rounded], x)[1])
    return x


def chapter_7(
    layers: list[Layer],
    samples: np.ndarray,
    images: np.ndarray,
    labels: np.ndarray,
    accuracy: float,
) -> None:
    title("7. The whole network on integers")
    logits = run_float(layers, images)[-1]
    print(f"   {'':16}accuracy   same answer   SQNR of logits")
    print(f"   {'float32':16}{accuracy:8.1%}")
    noise = {}
    for name, channels in (("int8 per tensor", False), ("int8 per channel", True)):
        integer = quantize_network(layers, samples, channels)
        result = run_integers(integer, images)
        right = (result.argmax(1) == labels).mean()
        same = (result.argmax(1) == logits.argmax(1)).mean()
        noise[name] = sqnr(logits, result)
        print(f"   {name:16}{right:8.1%} {same:12.1%} {noise[name]:13.1f} dB")
    simulated = run_simulated(integer, images)
    steps = np.abs(simulated - result) / integer[-1].output.scale
    print(
        f"   simulated in float: {(np.rint(steps) > 0).mean():.2%} of the logits are on another "
        f"grid point, {np.rint(steps).max():.0f} away at most"
    )
    before = sum(layer.weight.nbytes + layer.bias.nbytes for layer in layers)
    after = sum(layer.weight.nbytes + layer.bias.nbytes for layer in integer)
    print(f"   weights and biases: {before} bytes in float32, {after} in int8 and int32")
    assert noise["int8 per channel"] > noise["int8 per tensor"] + 3
    assert abs(right - accuracy) < 0.01
    assert same > 0.98
    assert (np.rint(steps) > 0).mean() < 0.05
    assert after < before / 3.5


def draw(path: Path) -> None:
    """A picture of chapter 2: eight values of a 3-bit grid, and the error between them."""
    import matplotlib.pyplot as plt

    grid = Grid(np.float64(0.5), 2, 0, 7)
    x = np.linspace(-1.6, 3.1, 1000)
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 6))
    above.plot(x, x, color="grey", label="real")
    above.step(x, grid.simulate(x), where="mid", label="on the grid")
    above.legend()
    below.plot(x, grid.simulate(x) - x)
    below.set(xlabel="real value", ylabel="error")
    figure.savefig(path, dpi=120)


def title(text: str) -> None:
    print(f"\n{text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="draw the grid into this file (matplotlib)")
    args = parser.parse_args()

    data = np.load(DIGITS)
    samples, images = (data[f"{k}_images"] / np.float32(16) for k in ("calibration", "evaluation"))
    labels = data["evaluation_labels"]
    layers = make_network(samples, data["calibration_labels"])
    accuracy = chapter_1(layers, images, labels)
    chapter_2()
    chapter_3(layers)
    chapter_4(run_float(layers, samples)[2])
    integer = quantize_network(layers, samples, channels=True)
    x = run_float(layers, images)[1]
    chapter_5(integer[1], x)
    chapter_6(integer[1], x)
    chapter_7(layers, samples, images, labels, accuracy)
    if args.picture:
        draw(args.picture)
    print("\nNext: 02_quantize_an_onnx_model.py does all this to an ONNX file, with tvm_quant.")


if __name__ == "__main__":
    main()
