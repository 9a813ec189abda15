"""Random small networks of what quantization has to deal with.

Odd shapes, 1 to 3 inputs, 1 to 3 outputs, shared weights, tensors that are read twice, tapped or
never read, float operators between integer ones. Values stay near unit variance.

A network follows from its seed alone: drawn choice by choice, hypothesis would try many variants of
few networks.
"""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from tvm import IRModule, relax

OP = relax.op
Shape = tuple[int, ...]


@dataclass
class RandomNetwork:
    """A float network as Prepare leaves it, with data for its inputs."""

    seed: int
    mod: IRModule
    inputs: list[np.ndarray]
    log: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"seed {self.seed}: " + "; ".join(self.log)


def random_network(seed: int, steps: int) -> RandomNetwork:
    """A network of images (N, C, H, W), with a dense tail now and then."""
    return _Drawer(seed).network(steps)


def random_networks(max_steps: int = 7) -> st.SearchStrategy[RandomNetwork]:
    """Networks of `random_network`; a failing one is tried with fewer steps."""
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(random_network, seed=seeds, steps=st.integers(2, max_steps))


class _Drawer:
    def __init__(self, seed: int):
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()
        self.tensors: list[relax.Var] = []
        self.weights: list[relax.Expr] = []
        self.params: list[relax.Var] = []
        self.reads: dict[relax.Var, list[relax.Var]] = {}
        self.picked: list[relax.Var] = []
        self.log: list[str] = []

    def network(self, steps: int) -> RandomNetwork:
        batch = self._any([2, 1, 3])
        shapes = [self._input_shape(batch) for _ in range(self._integer(1, 3))]
        params = [
            relax.Var(f"x{index}", relax.TensorType(shape, "float32"))
            for index, shape in enumerate(shapes)
        ]
        self.log.append(f"inputs {shapes}")
        self.params, self.tensors = params, list(params)
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for index in range(steps):
                    self._step(index)
                result = self.builder.emit_output(self._results(), "out")
            self.builder.emit_func_output(result)
        data = [self.rng.normal(size=shape).astype("float32") for shape in shapes]
        return RandomNetwork(self.seed, self.builder.get(), data, self.log)

    def _input_shape(self, batch: int) -> Shape:
        """The first input's sizes return often, so that inputs can be added and joined."""
        if self.tensors and self._coin():
            return shape_of(self.tensors[0])
        channels = self._any([4, 3, 6, 2, 1, 5])
        return (batch, channels, *(self._any([5, 7, 6, 4, 8, 3, 9, 2, 1]) for _ in range(2)))

    def _results(self) -> relax.Expr:
        """What nothing reads, the last of it at least, and now and then a tensor from within."""
        read = {operand for var in self.tensors for operand in self.reads.get(var, ())}
        unread = [var for var in self.tensors[len(self.params) :] if var not in read]
        chosen = unread[-self._integer(1, 3) :]
        if len(chosen) < 3 and self._coin():
            chosen.append(self._any(self.tensors))
        self.log.append(f"returns {[str(var.name) for var in chosen]}")
        return relax.Tuple(chosen) if len(chosen) > 1 else chosen[0]

    def _step(self, index: int) -> None:
        kinds = _STEPS if index else {"conv": _Drawer._conv}
        name = self._any(sorted(kinds))
        self.picked.clear()
        source = self._pick()
        value = kinds[name](self, source)
        if value is None:
            name, value = "conv", self._conv(source)
        var = self.builder.emit(value, f"{name}{index}")
        names = ", ".join(str(picked.name) for picked in self.picked)
        self.log.append(f"{var.name} = {name}({names}) {shape_of(var)}")
        self.reads[var] = list(self.picked)
        self.tensors.append(var)

    def _pick(self) -> relax.Var:
        """A tensor, most often the last one."""
        last = self._integer(0, 2)
        return self._choose(self.tensors[-1:] if last else self.tensors)

    def _choose(self, tensors: list[relax.Var]) -> relax.Var:
        self.picked.append(self._any(tensors))
        return self.picked[-1]

    def _any(self, items):
        return items[int(self.rng.integers(len(items)))]

    def _coin(self) -> bool:
        return bool(self.rng.integers(2))

    def _integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def _emit(self, value: relax.Expr, name: str = "inner") -> relax.Var:
        return self.builder.emit(value, name)

    def _weight(self, shape: Shape, fan_in: int) -> relax.Expr:
        same = [w for w in self.weights if shape_of(w) == shape]
        if same and self._coin():
            return self._any(same)
        values = self.rng.normal(0, fan_in**-0.5, shape) * np.exp(self.rng.normal(0, 0.4))
        weight = relax.const(values.astype("float32"))
        self.weights.append(weight)
        return weight

    # Layers ----------------------------------------------------------------------------------

    def _conv(self, x: relax.Var) -> relax.Expr:
        if len(shape_of(x)) != 4:
            return self._dense(x)
        _n, channels, height, width = shape_of(x)
        groups = self._any([d for d in range(1, channels + 1) if channels % d == 0])
        out = groups * self._integer(1, 3)
        window = [self._integer(1, min(3, size)) for size in (height, width)]
        attrs = {
            "groups": groups,
            "strides": [self._integer(1, 2) for _ in window],
            "padding": [self._integer(0, 1) for _ in range(4)],
        }
        shape = (out, channels // groups, *window)
        y = OP.nn.conv2d(x, self._weight(shape, int(np.prod(shape[1:]))), **attrs)
        return self._biased(y, (1, out, 1, 1))

    def _deconv(self, x: relax.Var) -> relax.Expr | None:
        if len(shape_of(x)) != 4 or max(shape_of(x)[2:]) > 5:
            return None
        channels = shape_of(x)[1]
        groups = self._any([d for d in range(1, channels + 1) if channels % d == 0])
        per_group = self._integer(1, 3)
        weight = self._weight((channels, per_group, 2, 3), channels // groups * 2)
        strides = [self._integer(1, 2) for _ in range(2)]
        y = OP.nn.conv2d_transpose(x, weight, groups=groups, strides=strides, padding=[0, 1, 0, 1])
        return self._biased(y, (1, groups * per_group, 1, 1))

    def _dense(self, x: relax.Var) -> relax.Expr:
        if len(shape_of(x)) == 4:
            x = self._emit(OP.mean(x, [2, 3]), "mean")
        features, out = shape_of(x)[-1], self._integer(1, 6)
        y = OP.matmul(x, self._weight((features, out), features))
        return self._biased(y, (out,))

    def _biased(self, y: relax.Expr, shape: Shape) -> relax.Expr:
        if self._coin():
            bias = self.rng.normal(0, 0.5, shape).astype("float32")
            y = OP.add(self._emit(y, "layer"), relax.const(bias))
        activation = self._any(["none", "relu", "relu6", "silu"])
        if activation == "none":
            return y
        return _FUNCTIONS[activation](self, self._emit(y, "biased"))

    def _attention(self, x: relax.Var) -> relax.Expr | None:
        if len(shape_of(x)) != 4:
            return None
        n, channels, height, width = shape_of(x)
        rows = self._emit(OP.reshape(x, (n, channels, height * width)), "rows")
        columns = self._emit(OP.permute_dims(rows, [0, 2, 1]), "columns")
        scores = self._emit(OP.matmul(rows, columns), "scores")
        factor = relax.const(np.float32((height * width) ** -0.5))
        weights = self._emit(OP.nn.softmax(self._emit(OP.multiply(scores, factor))), "soft")
        mixed = self._emit(OP.matmul(weights, rows), "mixed")
        return OP.reshape(mixed, (n, channels, height, width))

    # Of two or more tensors ------------------------------------------------------------------

    def _binary(self, operator):
        def combine(self, x: relax.Var) -> relax.Expr | None:
            other = self._choose([t for t in self.tensors if shape_of(t) == shape_of(x)])
            operands = (x, other) if self._coin() else (other, x)
            return operator(*operands)

        return combine

    def _gate(self, x: relax.Var) -> relax.Expr | None:
        if len(shape_of(x)) != 4:
            return None
        pooled = self._emit(OP.mean(x, [2, 3], keepdims=True), "mean")
        channels = shape_of(x)[1]
        squeezed = OP.nn.conv2d(pooled, self._weight((channels, channels, 1, 1), channels))
        return OP.multiply(x, self._emit(OP.sigmoid(self._emit(squeezed, "squeeze")), "gate"))

    def _concat(self, x: relax.Var) -> relax.Expr | None:
        if len(shape_of(x)) != 4:
            return None
        n, _c, height, width = shape_of(x)
        fitting = [
            t for t in self.tensors
            if len(shape_of(t)) == 4 and (shape_of(t)[0], *shape_of(t)[2:]) == (n, height, width)
        ]  # fmt: skip
        fields = [x, *(self._choose(fitting) for _ in range(self._integer(0, 2)))]
        if sum(shape_of(f)[1] for f in fields) > 12:
            return None
        return OP.concat(fields, axis=1)

    # Of one tensor ---------------------------------------------------------------------------

    def _function(self, x: relax.Var) -> relax.Expr:
        return _FUNCTIONS[self._any(sorted(_FUNCTIONS))](self, x)

    def _pool(self, x: relax.Var) -> relax.Expr | None:
        if len(shape_of(x)) != 4 or min(shape_of(x)[2:]) < 2:
            return None
        window = [self._integer(1, 2) for _ in range(2)]
        strides = [self._integer(1, 2) for _ in range(2)]
        padding = [self._integer(0, size - 1) for size in window] * 2
        pool = OP.nn.max_pool2d if self._coin() else OP.nn.avg_pool2d
        include = self._coin()
        return pool(x, window, strides, padding, count_include_pad=include)

    def _move(self, x: relax.Var) -> relax.Expr | None:
        if len(shape_of(x)) != 4:
            return None
        n, channels, height, width = shape_of(x)
        if height * width > 60:
            return OP.strided_slice(x, [2, 3], [0, 1], [height, width], [2, 1])
        choices = [
            OP.permute_dims(x, [0, 1, 3, 2]),
            OP.reshape(x, (n, channels, 1, height * width)),
            OP.nn.pad(x, [0, 0, 0, 0, 1, 0, 0, 1]),
            OP.image.resize2d(x, (height + 1, width * 2), method="nearest_neighbor"),
            OP.flip(x, 2),
        ]
        return self._any(choices)

    def _affine(self, x: relax.Var) -> relax.Expr:
        channels = (1, shape_of(x)[1], *[1] * (len(shape_of(x)) - 2))
        shape = self._any([(), channels])
        low, high = self._any([(0.5, 2.0), (-2.0, -0.5)])
        factor = self.rng.uniform(low, high, shape).astype("float32")
        scaled = self._emit(OP.multiply(x, relax.const(factor)), "scaled")
        return OP.add(scaled, relax.const(self.rng.normal(size=shape).astype("float32")))

    def _float(self, x: relax.Var) -> relax.Expr:
        return OP.multiply(self._emit(OP.nn.softmax(x, axis=1), "soft"), relax.const(np.float32(3)))


def _scalar(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def _hard_swish(drawer: _Drawer, x: relax.Var) -> relax.Expr:
    gate = OP.clip(drawer._emit(OP.add(x, _scalar(3.0))), 0, 6)
    return OP.multiply(x, drawer._emit(OP.multiply(drawer._emit(gate), _scalar(1 / 6))))


def _gelu(drawer: _Drawer, x: relax.Var) -> relax.Expr:
    half = drawer._emit(OP.multiply(x, _scalar(0.5)))
    error = drawer._emit(OP.erf(drawer._emit(OP.multiply(x, _scalar(2**-0.5)))))
    return OP.multiply(half, drawer._emit(OP.add(error, _scalar(1.0))))


_FUNCTIONS = {
    "relu": lambda _d, x: OP.nn.relu(x),
    "relu6": lambda _d, x: OP.clip(x, 0, 6),
    "clip": lambda _d, x: OP.clip(x, -1.5, 2),
    "sigmoid": lambda _d, x: OP.sigmoid(x),
    "tanh": lambda _d, x: OP.tanh(x),
    "leaky": lambda _d, x: OP.nn.leakyrelu(x, 0.1),
    "silu": lambda d, x: OP.multiply(x, d._emit(OP.sigmoid(x))),
    "hard_swish": _hard_swish,
    "gelu": _gelu,
}

_STEPS = {
    "conv": _Drawer._conv,
    "conv_again": _Drawer._conv,
    "deconv": _Drawer._deconv,
    "dense": _Drawer._dense,
    "attention": _Drawer._attention,
    "add": _Drawer._binary(None, OP.add),
    "subtract": _Drawer._binary(None, OP.subtract),
    "multiply": _Drawer._binary(None, OP.multiply),
    "gate": _Drawer._gate,
    "concat": _Drawer._concat,
    "function": _Drawer._function,
    "pool": _Drawer._pool,
    "move": _Drawer._move,
    "affine": _Drawer._affine,
    "float": _Drawer._float,
}


def shape_of(expr: relax.Expr) -> Shape:
    return tuple(int(d) for d in expr.ty.shape.values)
