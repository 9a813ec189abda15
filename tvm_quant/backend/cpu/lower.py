"""LowerContractions: turn convolutions and matrix products into kernels with packed weights.

Before    y = R.nn.conv2d(x, w, data_layout="NHWC")        y = R.matmul(x, w)
After     y = R.call_tir(conv, (x, packed w))              y = R.call_tir(matmul, (x, packed w))

Needs ChannelsLast; convolutions in other layouts are left to the default lowering. Constant weights
are packed now, others when the module runs. A `relax.nn.pad` with a constant in front of a
convolution becomes part of its padding, which is how realized modules pad with the zero point.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.backend.cpu.channels_last import last_layout
from tvm_quant.backend.cpu.contraction import (
    Window,
    dense,
    flat_pixels,
    grouped,
    per_channel,
    per_channel_taps,
    pointwise_window,
)
from tvm_quant.backend.cpu.isa import LARGEST_PAIR, Dot, Isa
from tvm_quant.backend.cpu.pack import largest_pair, pack_dense, pack_taps
from tvm_quant.backend.cpu.tile import STAGING_COST, choose_tile, window_rows
from tvm_quant.backend.cpu.winograd import plan, transform_filter, winograd
from tvm_quant.ir import constant, constant_value, op_name, rewrite_functions, tensor_shape

OUT_EWISE_FUSABLE = 4  # relax.transform.FuseOps: element-wise consumers join the kernel
CONVOLUTIONS = {f"relax.nn.conv{rank}d": rank for rank in (1, 2, 3)}
TRANSPOSED = {f"relax.nn.conv{rank}d_transpose": rank for rank in (1, 2, 3)}


@tvm.transform.module_pass(opt_level=0, name="LowerContractions")
class LowerContractions:
    """Turn convolutions and matrix products into kernels with packed weights."""

    def __init__(self, isa: Isa):
        self.isa = isa

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Rewrite every Relax function."""
        lowered = rewrite_functions(mod, _Lowering(mod, self.isa))
        return relax.transform.DeadCodeElimination()(lowered)


@mutator
class _Lowering(PyExprMutator):
    def __init__(self, mod: IRModule, isa: Isa):
        super().__init__(mod)
        self.isa = isa

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = op_name(call)
        if name in CONVOLUTIONS:
            return self._convolution(call, CONVOLUTIONS[name])
        if name in TRANSPOSED:
            return self._transposed_convolution(call, TRANSPOSED[name])
        if name == "relax.matmul":
            return self._matmul(call)
        return call

    def _convolution(self, call: relax.Call, rank: int) -> relax.Expr:
        attrs, shape = call.attrs, tensor_shape(call.args[1])
        layout = last_layout(rank + 2)
        if shape is None or None in shape or str(attrs.data_layout) != layout:
            return call
        weight = _transposed(call.args[1], str(attrs.kernel_layout), "O" + layout[1:-1] + "I")
        if weight is None or str(attrs.out_layout) not in ("", layout):
            return call
        data, window = self._with_padding(call.args[0], _window(attrs, weight.shape[1:-1]))
        return self._kernel(call, data, weight, window, int(attrs.groups))

    def _transposed_convolution(self, call: relax.Call, rank: int) -> relax.Expr:
        """A convolution of the spread input with the flipped kernel."""
        attrs, layout = call.attrs, last_layout(rank + 2)
        groups = int(attrs.groups)
        wanted = "I" + layout[1:-1] + "O"
        weight = _transposed(call.args[1], str(attrs.kernel_layout), wanted)
        if weight is None or str(attrs.data_layout) != layout:
            return call
        flipped = np.flip(weight, axis=tuple(range(1, rank + 1)))
        blocks = flipped.reshape(groups, -1, *flipped.shape[1:])  # (G, I/G, *kernel, O/G)
        exchanged = np.swapaxes(blocks, 1, -1)  # (G, O/G, *kernel, I/G)
        weight = exchanged.reshape(-1, *exchanged.shape[2:])
        window = _spread_window(attrs, weight.shape[1:-1])
        return self._kernel(call, call.args[0], weight, window, groups)

    def _with_padding(self, data: relax.Expr, window: Window) -> tuple[relax.Expr, Window]:
        """Takes a `relax.nn.pad` of the spatial axes into an unpadded window."""
        pad = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        if (
            pad is None
            or op_name(pad) != "relax.nn.pad"
            or any(window.pad_before + window.pad_after)
        ):
            return data, window
        widths = [int(width) for width in pad.attrs.pad_width]
        if str(pad.attrs.pad_mode) != "constant" or any(
            widths[:2] + widths[-2:] + [min(widths, default=0) < 0]
        ):
            return data, window
        spatial = widths[2:-2]
        value = float(pad.attrs.pad_value)
        padded = replace(
            window,
            pad_before=tuple(spatial[0::2]),
            pad_after=tuple(spatial[1::2]),
            pad_value=value if "float" in str(data.ty.dtype) else int(value),
        )
        return pad.args[0], padded

    def _matmul(self, call: relax.Call) -> relax.Expr:
        array = constant_value(call.args[1])
        rank = int(call.args[0].ty.ndim)
        if array is None or array.ndim != 2 or rank < 2:
            return call
        # Rows are pixels of a pointwise convolution.
        weight = array.T.reshape(array.shape[1], *[1] * (rank - 1), array.shape[0])
        return self._kernel(call, call.args[0], weight, pointwise_window(rank - 1), 1)

    def _kernel(
        self,
        call: relax.Call,
        data: relax.Expr,
        weight: npt.NDArray[Any],
        window: Window,
        groups: int,
    ) -> relax.Expr:
        dtype = str(call.ty.dtype)
        output = tuple(call.ty.shape.values)[-1 - len(window.kernel) : -1]
        per_group = weight.shape[0] // groups
        if groups > 1 and weight.shape[-1] == 1:
            return self._depthwise(data, weight[..., 0], window, output, dtype)
        lanes = _lanes(self.isa, per_group, groups)
        if lanes == 1:
            taps = constant(np.ascontiguousarray(np.moveaxis(weight, 0, -1)))
            return self._emit(
                grouped,
                "grouped",
                data,
                taps,
                window=window,
                output=output,
                groups=groups,
                dtype=dtype,
            )
        dot = self._dot(data, weight, window, groups, dtype) if lanes == self.isa.lanes else None
        if groups == 1:
            fewer = self._winograd(data, weight, window, output, dot, dtype)
            if fewer is not None:
                return fewer
        along_row = False
        if dot is not None and groups == 1 and _fits_row(data, window, dot):
            along_row = True
            weight, window = _along_row(weight, window, dot.size)
        packed = pack_dense(weight, lanes=lanes, group=dot.size if dot else 1)
        vectors = packed.shape[0] // groups
        total = self._emit(
            dense,
            "contract",
            data,
            constant(packed),
            window=window,
            **self._accumulator(data, window, output, vectors, dot),
            output=output,
            channels=int(weight.shape[0]),
            groups=groups,
            along_row=along_row,
            staged_dtype=dot.data if dot else str(data.ty.dtype),
            dtype=dtype,
        )
        return self._without_offset(total, data, weight, dot)

    def _winograd(
        self,
        data: relax.Expr,
        weight: npt.NDArray[Any],
        window: Window,
        output: tuple[Any, ...],
        dot: Dot | None,
        dtype: str,
    ) -> relax.Expr | None:
        """A 3x3 convolution with fewer products; None where that is not exact or not faster."""
        read = str(data.ty.dtype)
        chosen = plan(self.isa, dtype=read, dot=dot, window=window, output=output, weight=weight)
        if chosen is None or (read == "float32" and dtype != read):
            return None
        points = transform_filter(weight, chosen.algorithm)
        group = 1 if points.dtype == np.float32 else 2
        return self._emit(
            functools.partial(winograd, algorithm=chosen.algorithm),
            "winograd",
            data,
            constant(pack_dense(points, lanes=self.isa.lanes, group=group)),
            window=window,
            output=tuple(map(int, output)),
            channels=weight.shape[0],
            rows=chosen.rows,
            factor_dtype=str(points.dtype),
            dtype=dtype,
        )

    def _accumulator(
        self,
        data: relax.Expr,
        window: Window,
        output: tuple[Any, ...],
        vectors: int,
        dot: Dot | None,
    ) -> dict[str, Any]:
        """Form of the accumulator for the best tile: `flat` and `rounded` of `dense`."""
        choose = functools.partial(
            choose_tile,
            self.isa,
            vectors=vectors,
            multiplications=dot.multiplications if dot else 1,
        )
        if not isinstance(output[-1], tvm.tirx.IntImm):
            return {"flat": window.is_pointwise, "rounded": None}
        rows = int(output[-1])
        tile, cost = choose(rows=rows, padding=STAGING_COST)
        if window.is_pointwise:
            batch = tuple(data.ty.shape.values)[: -1 - len(output)]
            pixels = flat_pixels((*batch, *output))
            flat_tile, flat_cost = choose(rows=pixels, padding=0.0)
            if flat_cost <= cost:
                return {"flat": True, "rounded": _multiple(pixels, flat_tile.rows)}
        return {"flat": False, "rounded": _multiple(rows, tile.rows)}

    def _depthwise(
        self,
        data: relax.Expr,
        weight: npt.NDArray[Any],
        window: Window,
        output: tuple[Any, ...],
        dtype: str,
    ) -> relax.Expr:
        """One filter (*kernel) per output channel: weight (O, *kernel)."""
        rounded = _rounded_window(output[-1])
        dot = self._tap_dot(data, weight, window, dtype)
        if dot is None:
            taps = constant(np.ascontiguousarray(np.moveaxis(weight, 0, -1)))
            return self._emit(
                per_channel,
                "depthwise",
                data,
                taps,
                window=window,
                rounded=rounded,
                output=output,
                dtype=dtype,
            )
        *outer, rows, columns = window.kernel
        steps = -(-rows // dot.size)
        taps = -(-rows // steps)
        packed = pack_taps(weight, lanes=self.isa.lanes, taps=taps, group=dot.size)
        total = self._emit(
            per_channel_taps,
            "depthwise",
            data,
            constant(packed),
            window=replace(window, kernel=(*outer, steps * taps, columns)),
            taps=taps,
            rounded=rounded,
            output=output,
            staged_dtype=dot.data,
            dtype=dtype,
        )
        return self._without_offset(total, data, weight, dot)

    def _without_offset(
        self, total: relax.Expr, data: relax.Expr, weight: npt.NDArray[Any], dot: Dot | None
    ) -> relax.Expr:
        """Takes out of the sums what the conversion of the data to the type of `dot` added."""
        offset = dot.offset(str(data.ty.dtype)) if dot else 0
        if not offset:
            return total
        excess = offset * weight.astype(np.int64).reshape(len(weight), -1).sum(1)
        return relax.op.add(self.builder_.emit(total), constant((-excess).astype(np.int32)))

    def _dot(
        self,
        data: relax.Expr,
        weight: npt.NDArray[Any],
        window: Window,
        groups: int,
        dtype: str,
    ) -> Dot | None:
        """The target's exact instruction for sums of products of these types, if there is one."""
        depth = weight.shape[-1]
        dot = self.isa.dot(str(data.ty.dtype), pair=0)
        if dot is None or weight.dtype != np.int8 or dtype != "int32":
            return None
        along_row = groups == 1 and _fits_row(data, window, dot)
        if depth == 1 and not along_row:
            return None
        if dot.largest_pair < LARGEST_PAIR:
            read = _along_row(weight, window, dot.size)[0] if along_row else weight
            dot = self.isa.dot(str(data.ty.dtype), pair=largest_pair(read))
        if dot is None or groups == 1 or depth % dot.size == 0:
            return dot
        # The groups of the data would need gaps between them.
        pairs = self.isa.dot(str(data.ty.dtype), size=2)
        return pairs if depth % 2 == 0 else None

    def _tap_dot(
        self, data: relax.Expr, weight: npt.NDArray[Any], window: Window, dtype: str
    ) -> Dot | None:
        """The same for rows of taps of a depthwise convolution."""
        channels = int(data.ty.shape.values[-1])
        exact = weight.dtype == np.int8 and dtype == "int32" and channels == len(weight)
        if not exact or not _has_rows(window) or channels % self.isa.lanes:
            return None
        return self.isa.tap_dot(str(data.ty.dtype))

    def _emit(
        self, kernel: Any, name: str, *args: relax.Expr, window: Window, **kwargs: Any
    ) -> relax.Expr:
        return self.builder_.call_te(
            functools.partial(kernel, window=window),
            *args,
            **kwargs,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": OUT_EWISE_FUSABLE},
        )


def _window(attrs: Any, kernel: Sequence[int]) -> Window:
    rank = len(kernel)
    padding = tuple(int(pad) for pad in attrs.padding)
    return Window(
        kernel=tuple(kernel),
        stride=tuple(int(step) for step in attrs.strides),
        dilation=tuple(int(step) for step in attrs.dilation),
        pad_before=padding[:rank],
        pad_after=padding[rank:],
    )


def _spread_window(attrs: Any, kernel: Sequence[int]) -> Window:
    """Window of a transposed convolution, whose stride spreads the input."""
    rank, ones = len(kernel), (1,) * len(kernel)
    reach = [(k - 1) * int(step) for k, step in zip(kernel, attrs.dilation, strict=True)]
    padding = [int(pad) for pad in attrs.padding]
    extra = [int(pad) for pad in attrs.output_padding]
    return Window(
        kernel=tuple(kernel),
        stride=ones,
        dilation=tuple(int(step) for step in attrs.dilation),
        pad_before=tuple(size - pad for size, pad in zip(reach, padding[:rank], strict=True)),
        pad_after=tuple(
            size - pad + more for size, pad, more in zip(reach, padding[rank:], extra, strict=True)
        ),
        spread=tuple(int(step) for step in attrs.strides),
    )


def _fits_row(data: relax.Expr, window: Window, dot: Dot) -> bool:
    """Whether input channels fill no groups, and neighbouring pixels can help."""
    width, channels = data.ty.shape.values[-2:]
    return (
        isinstance(width, tvm.tirx.IntImm)
        and int(channels) % dot.size > 0
        and window.kernel[-1] > 1
        and window.dilation[-1] == 1
        and all(step == 1 for step in window.spread)
    )


def _along_row(
    weight: npt.NDArray[Any], window: Window, group: int
) -> tuple[npt.NDArray[Any], Window]:
    """The same convolution of rows of one channel; the weight becomes (O, *kernel[:-1], I)."""
    channels = weight.shape[-1]
    wide = replace(
        window,
        # The weights end with zeros.
        kernel=(*window.kernel[:-1], -(-window.kernel[-1] * channels // group) * group),
        stride=(*window.stride[:-1], window.stride[-1] * channels),
        pad_before=(*window.pad_before[:-1], window.pad_before[-1] * channels),
        pad_after=(*window.pad_after[:-1], window.pad_after[-1] * channels),
    )
    return weight.reshape(*weight.shape[:-2], -1), wide


def _has_rows(window: Window) -> bool:
    """Whether neighbouring rows of the data are multiplied with the same column of the kernel."""
    return len(window.kernel) > 1 and window.kernel[-2] > 1 and window.dilation[-2] == 1


def _transposed(weight: relax.Expr, layout: str, wanted: str) -> npt.NDArray[Any] | None:
    """A constant weight with its axes in the `wanted` order; None if it is no constant."""
    array = constant_value(weight)
    if array is None or sorted(layout) != sorted(wanted):
        return None
    return np.transpose(array, [layout.index(axis) for axis in wanted])


def _lanes(isa: Isa, per_group: int, groups: int) -> int:
    """Output channels of one weight vector; 1 if the groups do not split into vectors."""
    if groups == 1:
        return isa.lanes
    lanes = isa.lanes
    while lanes > 1 and per_group % lanes:
        lanes //= 2
    return lanes


def _rounded_window(rows: Any) -> Any:
    if not isinstance(rows, tvm.tirx.IntImm):
        return rows
    return _multiple(int(rows), window_rows(int(rows)))


def _multiple(number: int, of: int) -> int:
    """The next multiple, from `number` on."""
    return -(-number // of) * of
