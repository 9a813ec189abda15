"""ChannelsLast: move the channel axis of convolutional networks from axis 1 to the last.

Before    y: (N, O, P, Q) = conv2d(x, w, data_layout="NCHW")
After     x1: (N, H, W, C) = permute_dims(x, (0, 2, 3, 1))
          y1: (N, P, Q, O) = conv2d(x1, w, data_layout="NHWC")
          y: (N, O, P, Q) = permute_dims(y1, (0, 3, 1, 2))

Every variable that a rewritten call defines keeps its old form, bound to a transpose of its
channels-last twin; the calls that understand channels-last read the twin, so that within a chain of
such calls the transposes are dead code and removed. Convolutions and pools start a chain, the other
operators of `REWRITES` join one that already reaches them; all others read the old form.

Ranks 3, 4 and 5. Function inputs and outputs keep their layout. Idempotent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.backend.cpu.attrs import with_attrs
from tvm_quant.ir import constant, constant_value, op_name, rewrite_functions, tensor_shape

FIRST_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def last_layout(rank: int) -> str:
    """Channels-last layout of a rank, such as "NHWC"."""
    first = FIRST_LAYOUTS[rank]
    return first[0] + first[2:] + "C"


@tvm.transform.module_pass(opt_level=0, name="ChannelsLast")
class ChannelsLast:
    """Move the channel axis of convolutional networks to the end."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Rewrite every Relax function."""
        rewritten = rewrite_functions(mod, _ChannelsLast(mod))
        return relax.transform.DeadCodeElimination()(rewritten)


@mutator
class _ChannelsLast(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.twins: dict[relax.Var, relax.Var] = {}  # old variable: channels-last twin
        self.fields: dict[relax.Var, list[relax.Expr]] = {}  # old tuple: twins of its fields

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = self.visit_expr(binding.value)
        if op_name(call) == "relax.split":
            return self._bind_fields(binding.var, call)
        if isinstance(call, relax.TupleGetItem) and call.tuple_value in self.fields:
            return self._bind_twin(binding.var, self.fields[call.tuple_value][call.index])
        rewrite = REWRITES.get(op_name(call) or "")
        if rewrite is None or not _rewritable(call):
            return self._bind(binding.var, call)
        twin = rewrite(call, self)
        if twin is None:
            return self._bind(binding.var, call)
        twin = self.builder_.normalize(twin)
        rank = int(twin.ty.ndim)
        if op_name(call) in ENDS or rank not in FIRST_LAYOUTS:
            return self._bind(binding.var, twin)
        return self._bind_twin(binding.var, twin)

    def _bind_twin(self, var: relax.Var, twin: relax.Expr) -> None:
        """Binds a variable to the transpose of its channels-last twin."""
        twin_var = self.builder_.emit(twin, name_hint=f"{var.name}_last")
        self._bind(var, relax.op.permute_dims(twin_var, to_first(int(twin_var.ty.ndim))))
        self.twins[self.get_var_remap(var)] = twin_var

    def _bind_fields(self, var: relax.Var, call: relax.Call) -> None:
        """Binds the result of a split, whose fields get twins when they are taken out."""
        self._bind(var, call)
        twin = _split(call, self)
        if twin is not None:
            fields = self.builder_.emit(twin, name_hint=f"{var.name}_last")
            count = len(fields.ty.fields)
            self.fields[self.get_var_remap(var)] = [
                relax.TupleGetItem(fields, index) for index in range(count)
            ]

    def visit_if_(self, branch: relax.If) -> relax.Expr:
        # Not super().visit_if_: it calls back here for ever.
        condition = self.visit_expr(branch.cond)
        return relax.If(
            condition, self._branch(branch.true_branch), self._branch(branch.false_branch)
        )

    def _branch(self, body: relax.Expr) -> relax.Expr:
        """A twin made inside a branch must not be read outside of it."""
        outer = dict(self.twins)
        body = self.visit_with_new_scope(body)
        self.twins = outer
        return body

    def has_twin(self, expr: relax.Expr) -> bool:
        """Whether a chain reaches `expr`."""
        return isinstance(expr, relax.Var) and expr in self.twins

    def last(self, expr: relax.Expr) -> relax.Expr:
        """`expr` with its channel axis last."""
        if self.has_twin(expr):
            return self.twins[expr]
        rank = int(expr.ty.ndim)
        array = constant_value(expr)
        if array is not None:
            return constant(np.ascontiguousarray(np.transpose(array, to_last(rank))))
        twin = self.builder_.emit(self._transposed(expr))
        if isinstance(expr, relax.Var):
            self.twins[expr] = twin
        return twin

    def _transposed(self, expr: relax.Expr) -> relax.Expr:
        """A transpose; behind a pad, which the convolution that asks for it can then take in."""
        value = self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        if value is not None and op_name(value) == "relax.nn.pad":
            self.last(value.args[0])
            padded = _pad(value, self)
            if padded is not None:
                return padded
        return relax.op.permute_dims(expr, to_last(int(expr.ty.ndim)))

    def _bind(self, var: relax.Var, value: relax.Expr) -> None:
        value = self.builder_.normalize(value)
        new_var = self.with_type(self.visit_var_def(var), value.ty)
        self.set_var_remap(var, new_var)
        self.builder_.emit_normalized(relax.VarBinding(new_var, value))


def to_last(rank: int) -> list[int]:
    """Axes that permute channels-first to channels-last."""
    return [0, *range(2, rank), 1]


def to_first(rank: int) -> list[int]:
    """Axes that permute channels-last to channels-first."""
    return [0, rank - 1, *range(1, rank - 1)]


def _rewritable(call: relax.Call) -> bool:
    """Whether the type of the result and of the tensor operands are known."""
    tensors = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
    return all(int(tensor.ty.ndim) >= 0 for tensor in tensors)


Rewrite = Callable[[relax.Call, _ChannelsLast], relax.Expr | None]


def _convolution(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if {str(call.attrs.data_layout), str(call.attrs.out_layout)} != {FIRST_LAYOUTS[rank]}:
        return None
    layout = last_layout(rank)
    args = [chain.last(call.args[0]), call.args[1]]
    return with_attrs(call, args, data_layout=layout, out_layout=layout)


def _transposed_convolution(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    # Without a constant weight it is left to TVM, which knows channels-first only.
    if constant_value(call.args[1]) is None or len(call.attrs.kernel_layout) != call.ty.ndim:
        return None
    return _convolution(call, chain)


def _pool(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if str(call.attrs.layout) != FIRST_LAYOUTS[rank]:
        return None
    layout = last_layout(rank)
    args = [chain.last(call.args[0]), *call.args[1:]]
    return with_attrs(call, args, layout=layout, out_layout=layout)


def _resize(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    if str(call.attrs.layout) != "NCHW" or not chain.has_twin(call.args[0]):
        return None
    return with_attrs(call, [chain.last(call.args[0]), *call.args[1:]], layout="NHWC")


def _elementwise(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if rank not in FIRST_LAYOUTS or not any(chain.has_twin(arg) for arg in call.args):
        return None
    args = []
    for arg in call.args:
        operand = _broadcast_last(arg, rank, chain)
        if operand is None:
            return None
        args.append(operand)
    return with_attrs(call, args)


def _broadcast_last(arg: relax.Expr, rank: int, chain: _ChannelsLast) -> relax.Expr | None:
    """Operand of an element-wise call on channels-last tensors of `rank`; None if unknown."""
    if not isinstance(arg.ty, relax.TensorType):
        return arg  # a scalar bound
    if int(arg.ty.ndim) == rank:
        return chain.last(arg)
    shape = tensor_shape(arg)
    if shape is not None and all(dim == 1 for dim in shape):
        return arg
    array = constant_value(arg)
    if array is None:
        return None
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return constant(np.ascontiguousarray(np.transpose(full, to_last(rank))))


def _take(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    """A table look-up is element-wise in its indices."""
    table, indices = call.args
    if int(table.ty.ndim) != 1 or int(indices.ty.ndim) not in FIRST_LAYOUTS:
        return None
    return with_attrs(call, [table, chain.last(indices)]) if chain.has_twin(indices) else None


def _split(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.args[0].ty.ndim)
    if rank not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]):
        return None
    axis = _last_axis(int(call.attrs.axis), rank)
    return with_attrs(call, [chain.last(call.args[0])], axis=axis)


def _concat(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    if rank not in FIRST_LAYOUTS or not any(chain.has_twin(field) for field in fields):
        return None
    axis = _last_axis(int(call.attrs.axis), rank)
    return with_attrs(call, [relax.Tuple([chain.last(field) for field in fields])], axis=axis)


def _softmax(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if rank not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]):
        return None
    return with_attrs(call, [chain.last(call.args[0])], axis=_last_axis(int(call.attrs.axis), rank))


def _pad(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if rank not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]):
        return None
    first = np.asarray([int(width) for width in call.attrs.pad_width]).reshape(rank, 2)
    widths = [int(width) for width in first[to_last(rank)].ravel()]
    return with_attrs(call, [chain.last(call.args[0]), *call.args[1:]], pad_width=widths)


def _strided_slice(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if rank not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]):
        return None
    fields = getattr(call.args[1], "fields", None)
    if fields is None:
        return None
    axes = [_last_axis(int(field.value), rank) for field in fields]
    return relax.op.strided_slice(
        chain.last(call.args[0]), axes, *call.args[2:], assume_inbound=call.attrs.assume_inbound
    )


def _reduce(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.args[0].ty.ndim)
    if rank not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]) or call.attrs.axis is None:
        return None
    axes = sorted(int(axis) % rank for axis in call.attrs.axis)
    if not bool(call.attrs.keepdims) and axes != list(range(2, rank)):
        return None
    moved = [_last_axis(axis, rank) for axis in axes]
    return with_attrs(call, [chain.last(call.args[0])], axis=moved)


def _reshape(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    """(N, C, 1, 1) has the same order of elements in both layouts."""
    shape = tensor_shape(call.args[0])
    if shape is None or len(shape) not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]):
        return None
    if any(dim != 1 for dim in shape[2:]) or call.ty.shape is None:
        return None
    return relax.op.reshape(chain.last(call.args[0]), call.ty.shape)


def _permute(call: relax.Call, chain: _ChannelsLast) -> relax.Expr | None:
    rank = int(call.ty.ndim)
    if rank not in FIRST_LAYOUTS or not chain.has_twin(call.args[0]) or call.attrs.axes is None:
        return None
    axes = [_last_axis(int(axis), rank) for axis in call.attrs.axes]
    twin = chain.last(call.args[0])
    return twin if axes == list(range(rank)) else relax.op.permute_dims(twin, axes)


def _last_axis(axis: int, rank: int) -> int:
    """Where a channels-first axis is in the channels-last tensor."""
    return to_last(rank).index(axis % rank)


# These read a channels-last tensor and give the result in its old form.
ENDS = {"relax.reshape", "relax.squeeze", "relax.nn.batch_flatten", "relax.permute_dims"}

_ELEMENTWISE = """
    relax.abs relax.add relax.astype relax.bitwise_and relax.bitwise_not relax.bitwise_or
    relax.bitwise_xor relax.ceil relax.clip relax.divide relax.equal relax.erf
    relax.exp relax.floor relax.floor_divide relax.greater relax.greater_equal relax.isinf
    relax.isnan relax.left_shift relax.less
    relax.less_equal relax.log relax.logical_and relax.logical_not relax.logical_or relax.maximum
    relax.minimum relax.mod relax.multiply relax.negative relax.not_equal relax.power
    relax.right_shift relax.round
    relax.rsqrt relax.sigmoid relax.sign relax.sqrt relax.square relax.subtract relax.tanh
    relax.where relax.nn.gelu relax.nn.gelu_tanh relax.nn.leakyrelu relax.nn.relu relax.nn.relu6
    relax.nn.selu relax.nn.silu relax.nn.softplus
    tvm_quant.requantize tvm_quant.simulated_quantize
"""

REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys([f"relax.nn.conv{rank}d" for rank in (1, 2, 3)], _convolution),
    **dict.fromkeys(
        [f"relax.nn.conv{rank}d_transpose" for rank in (1, 2, 3)], _transposed_convolution
    ),
    **dict.fromkeys(
        [
            f"relax.nn.{kind}_pool{rank}d"
            for kind in ("max", "avg", "adaptive_avg")
            for rank in (1, 2, 3)
        ],
        _pool,
    ),
    **dict.fromkeys([f"relax.{name}" for name in ("mean", "sum", "max", "min")], _reduce),
    **dict.fromkeys(["relax.reshape", "relax.squeeze", "relax.nn.batch_flatten"], _reshape),
    **dict.fromkeys(["relax.nn.softmax", "relax.nn.log_softmax"], _softmax),
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    "relax.concat": _concat,
    "relax.take": _take,
    "relax.image.resize2d": _resize,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _permute,
    "relax.strided_slice": _strided_slice,
}
