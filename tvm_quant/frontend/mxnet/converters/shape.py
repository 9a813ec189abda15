"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from tvm_quant.frontend.mxnet.converters.node import Converter, Node, Results

R = relax.op

#: By mode of Pad.
_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def flatten(node: Node) -> relax.Expr:
    """All axes but the first become one."""
    return R.reshape(node.data, (node.shape()[0], math.prod(node.shape()[1:])))


def reshape(node: Node) -> relax.Expr:
    """By the codes of MXNet, or by `target_shape` as the oldest files have it."""
    if node.attributes.sizes("shape", ()):
        wanted = new_shape(
            node.shape(), node.attributes.sizes("shape"), reverse=node.attributes.flag("reverse")
        )
    else:
        wanted = tuple(size or -1 for size in node.attributes.sizes("target_shape"))
    return R.reshape(node.data, wanted)


def new_shape(shape: tuple[int, ...], codes: tuple[int, ...], *, reverse: bool) -> tuple[int, ...]:
    """The shape that the codes of Reshape ask for.

    0 keeps a size, -1 is what remains, -2 keeps all that follow, -3 joins two, -4 splits one into
    the two numbers that follow.

    Source: mx.nd.reshape in the reference of MXNet 1.9.1.

    >>> new_shape((2, 3, 4), (-4, 1, 2, -2), reverse=False)
    (1, 2, 3, 4)
    >>> new_shape((10, 5, 4), (-1, 0), reverse=True)
    (50, 4)
    """
    given, wanted = list(shape), list(codes)
    if reverse:
        given, wanted = given[::-1], wanted[::-1]
    result: list[int] = []
    at = 0
    while wanted:
        code = wanted.pop(0)
        taken, sizes = _step(code, given[at:], wanted)
        at += taken
        result += sizes
    if result.count(-1) > 1:
        raise ValueError(f"its shape {codes} leaves more than one size open")
    if -1 in result:
        rest = math.prod(size for size in result if size != -1)
        result[result.index(-1)] = math.prod(shape) // max(rest, 1)
    if math.prod(result) != math.prod(shape):
        raise ValueError(f"its shape {codes} does not fit data of shape {shape}")
    return tuple(result[::-1] if reverse else result)


def _step(code: int, given: list[int], wanted: list[int]) -> tuple[int, list[int]]:
    """How many sizes one code takes, and which it gives."""
    needed = {0: 1, -3: 2, -4: 1}.get(code, 0)
    if len(given) < needed or (code == -4 and len(wanted) < 2) or code < -4:
        raise ValueError(f"its shape has the code {code} where nothing fits it")
    if code == 0:
        return 1, given[:1]
    if code == -2:
        return len(given), given
    if code == -3:
        return 2, [given[0] * given[1]]
    if code == -4:
        pair = [wanted.pop(0), wanted.pop(0)]
        known = math.prod(size for size in pair if size != -1)
        return 1, [given[0] // max(known, 1) if size == -1 else size for size in pair]
    return 1, [code]


def transpose(node: Node) -> relax.Expr:
    """Axes in another order, turned around unless the node says which."""
    return R.permute_dims(node.data, list(node.attributes.sizes("axes", ())) or None)


def swap_axes(node: Node) -> relax.Expr:
    """Two axes change places."""
    order = list(range(node.rank()))
    first, second = (node.axis(name, 0) for name in ("dim1", "dim2"))
    order[first], order[second] = second, first
    return R.permute_dims(node.data, order)


def expand_dims(node: Node) -> relax.Expr:
    """A new axis."""
    return R.expand_dims(node.data, node.attributes.integer("axis"))


def squeeze(node: Node) -> relax.Expr:
    """Without axes of one; some, or all."""
    axes = [axis for axis in node.attributes.slots("axis", ()) if axis is not None]
    return R.squeeze(node.data, axes or None)


def concat(node: Node) -> relax.Expr:
    """Along one axis."""
    return R.concat(node.operands(), node.axis("dim", 1))


def stack(node: Node) -> relax.Expr:
    """Along a new axis."""
    axis = node.attributes.integer("axis", 0)
    return R.concat([node.emit(R.expand_dims(part, axis)) for part in node.operands()], axis)


def split(node: Node) -> Results:
    """Equal parts of an axis, which may go away."""
    count, axis = node.attributes.integer("num_outputs"), node.axis("axis", 1)
    if count == 1:
        parts: list[relax.Expr] = [node.data]
    else:
        fields = node.emit(R.split(node.data, count, axis))
        parts = [node.emit(relax.TupleGetItem(fields, index)) for index in range(count)]
    if node.attributes.flag("squeeze_axis"):
        parts = [R.squeeze(part, [axis]) for part in parts]
    return list(parts)


def slice_axis(node: Node) -> relax.Expr:
    """A range of one axis."""
    axis = node.axis("axis", 0)
    begin = node.attributes.integer("begin", 0)
    end = node.attributes.integer("end") if "end" in node.attributes else node.shape()[axis]
    return _sliced(node, [axis], [begin], [end])


def slice_(node: Node) -> relax.Expr:
    """Ranges of the first axes."""
    begin, end = node.attributes.slots("begin"), node.attributes.slots("end")
    steps = [step or 1 for step in node.attributes.slots("step", ()) or (1,) * len(begin)]
    sizes = node.shape()
    axes = list(range(len(begin)))
    first = [(-1 if s < 0 else 0) if b is None else b for b, s in zip(begin, steps, strict=True)]
    last = [
        (-sizes[axis] - 1 if step < 0 else sizes[axis]) if stop is None else stop
        for axis, (stop, step) in enumerate(zip(end, steps, strict=True))
    ]
    return R.strided_slice(node.data, axes, first, last, steps)


def slice_like(node: Node) -> relax.Expr:
    """The front of some axes, or all, as long as those of another tensor."""
    shape = node.shape(1)
    axes = [a % node.rank() for a in node.attributes.sizes("axes", ())] or list(range(len(shape)))
    return _sliced(node, axes, [0] * len(axes), [shape[axis] for axis in axes])


def crop(node: Node) -> relax.Expr:
    """The old Crop: as high and wide as another tensor or as given, at an offset or the centre."""
    height, width = node.shape(1)[2:] if len(node.inputs) > 1 else node.attributes.sizes("h_w")
    top, left = node.attributes.sizes("offset", (0, 0))
    if node.attributes.flag("center_crop"):
        top, left = (node.shape()[2] - height) // 2, (node.shape()[3] - width) // 2
    return _sliced(node, [2, 3], [top, left], [top + height, left + width])


def _sliced(node: Node, axes: list[int], begin: list[int], end: list[int]) -> relax.Expr:
    return R.strided_slice(node.data, axes, begin, end)


def pad(node: Node) -> relax.Expr:
    """Both ends of each axis."""
    mode = node.attributes.text("mode", "constant")
    if mode not in _PAD_MODES:
        raise ValueError(f"its mode is '{mode}'; expected one of {', '.join(_PAD_MODES)}")
    value = node.attributes.number("constant_value", 0.0)
    width = list(node.attributes.sizes("pad_width"))
    return R.nn.pad(node.data, width, pad_mode=_PAD_MODES[mode], pad_value=value)


def tile(node: Node) -> relax.Expr:
    """Whole copies side by side."""
    return R.tile(node.data, list(node.attributes.sizes("reps")))


def repeat(node: Node) -> relax.Expr:
    """Each element several times."""
    axis = node.axis("axis", 0) if "axis" in node.attributes else None
    return R.repeat(node.data, node.attributes.integer("repeats"), axis)


def flip(node: Node) -> relax.Expr:
    """Some axes the other way round."""
    result = node.data
    for axis in node.attributes.sizes("axis"):
        result = node.emit(R.flip(result, axis))
    return result


def broadcast_to(node: Node) -> relax.Expr:
    """To a shape, in which 0 keeps a size."""
    wanted = zip(node.attributes.sizes("shape"), node.shape(), strict=True)
    return R.broadcast_to(node.data, [size or old for size, old in wanted])


def broadcast_axis(node: Node) -> relax.Expr:
    """Some axes of one get another size."""
    sizes = list(node.shape())
    pairs = zip(node.attributes.sizes("axis"), node.attributes.sizes("size"), strict=True)
    for axis, size in pairs:
        sizes[axis] = size
    return R.broadcast_to(node.data, sizes)


def broadcast_like(node: Node) -> relax.Expr:
    """To the shape of another tensor."""
    return R.broadcast_to(node.data, node.shape(1))


def take(data: int, indices: int) -> Converter:
    """Rows by number; numbers outside are those at the ends. Args: which operand is what."""

    def convert(node: Node) -> relax.Expr:
        mode = node.attributes.text("mode", "clip")
        if mode not in ("clip", "wrap"):
            raise ValueError(f"its mode is '{mode}'; expected clip or wrap")
        axis = node.attributes.integer("axis", 0)
        places = node.emit(R.astype(node.operand(indices), "int32"))
        return R.take(node.operand(data), places, axis, mode=mode)

    return convert


def depth_to_space(node: Node) -> relax.Expr:
    """Channels become pixels of blocks."""
    count, channels, height, width = node.shape()
    block = node.attributes.integer("block_size")
    parts = (count, block, block, channels // block**2, height, width)
    split_up = node.emit(R.reshape(node.data, parts))
    moved = node.emit(R.permute_dims(split_up, [0, 3, 4, 1, 5, 2]))
    return R.reshape(moved, (count, channels // block**2, height * block, width * block))


def space_to_depth(node: Node) -> relax.Expr:
    """Pixels of blocks become channels."""
    count, channels, height, width = node.shape()
    block = node.attributes.integer("block_size")
    parts = (count, channels, height // block, block, width // block, block)
    split_up = node.emit(R.reshape(node.data, parts))
    moved = node.emit(R.permute_dims(split_up, [0, 3, 5, 1, 2, 4]))
    return R.reshape(moved, (count, channels * block**2, height // block, width // block))


# Sizes of images --------------------------------------------------------------


def upsampling(node: Node) -> relax.Expr:
    """Each pixel several times, or a transposed convolution with the weights of the node."""
    scale = node.attributes.integer("scale")
    kind = node.attributes.text("sample_type", "nearest")
    choices: dict[str, Callable[[Node, int], relax.Expr]] = {
        "bilinear": _by_convolution,
        "nearest": _repeated,
    }
    if kind not in choices:
        raise ValueError(f"its sample type is '{kind}'; expected one of {', '.join(choices)}")
    return choices[kind](node, scale)


def _repeated(node: Node, scale: int) -> relax.Expr:
    if len(node.inputs) > 1:
        raise ValueError("it joins several inputs; only one is supported")
    size = [extent * scale for extent in node.shape()[2:]]
    return _resized(node, size, "nearest_neighbor", "asymmetric")


def _by_convolution(node: Node, scale: int) -> relax.Expr:
    """Source: GetDeconvolutionParam in src/operator/nn/upsampling-inl.h of MXNet 1.9.1."""
    pad_size = math.ceil((scale - 1) / 2)
    return R.nn.conv2d_transpose(
        node.data,
        node.operand(1),
        strides=[scale, scale],
        padding=[pad_size] * 4,
        groups=node.attributes.integer("num_filter"),
        data_layout="NCHW",
        kernel_layout="IOHW",
    )


def bilinear_resize(node: Node) -> relax.Expr:
    """`_contrib_BilinearResize2D` to a size; corners stay corners unless the node says no."""
    size = [node.attributes.integer(name) for name in ("height", "width")]
    corners = node.attributes.flag("align_corners", default=True)
    return _resized(node, size, "linear", "align_corners" if corners else "half_pixel")


def _resized(node: Node, size: list[int], method: str, coordinates: str) -> relax.Expr:
    return R.image.resize2d(
        node.data,
        tuple(size),
        layout="NCHW",
        method=method,
        coordinate_transformation_mode=coordinates,
        rounding_method="floor" if method == "nearest_neighbor" else "round",
    )
