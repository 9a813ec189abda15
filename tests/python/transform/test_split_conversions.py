"""SplitConversions: what goes into which function, and that all compute what they did in one."""

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from tvm import relax

import tvm_quant
from random_networks import RandomNetwork, random_networks
from tvm_quant.backend.tensors import arrays_of
from tvm_quant.errors import ConfigError
from tvm_quant.ir import bindings, op_name
from tvm_quant.ir.inline import inlined
from tvm_quant.transform import SplitConversions

OP = relax.op
PARTS = ("quantize_inputs", "quantized_main", "dequantize_outputs")


def var(name, shape=(2, 3), dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def module(build, *params):
    """`main` of what `build(emit, *params)` returns."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def codes(x, scale=0.5):
    steps = OP.clip(OP.round(OP.divide(x, relax.const(scale))), -127, 127)
    return OP.astype(steps, "int8")


def real(x, scale=0.25):
    return OP.multiply(OP.astype(x, "float32"), relax.const(scale))


def square(x):
    wide = OP.astype(x, "int32")
    return OP.multiply(wide, wide)


def layer(emit, x):
    return emit(square(emit(codes(x))))


def types(mod, name):
    """(dtypes of what a function takes, of what it gives)."""
    func, given = mod[name], mod[name].ret_ty
    fields = given.fields if isinstance(given, relax.TupleType) else [given]
    return [str(param.ty.dtype) for param in func.params], [str(ty.dtype) for ty in fields]


def operators(mod, name):
    return [str(op_name(b.value)).split(".")[-1] for b in bindings(mod[name]) if op_name(b.value)]


def split(mod, integral=False):
    result = SplitConversions(integral=integral)(mod)
    relax.analysis.well_formed(result)
    return result


def run(mod, *arrays):
    names = [str(param.name) for param in mod["main"].params]
    return tvm_quant.Runner(mod).run(dict(zip(names, arrays, strict=True)))


def in_turns(mod, *arrays):
    """The results of the three functions, each run by itself."""
    machine = relax.VirtualMachine(tvm_quant.compile(mod), tvm.cpu())
    values = [tvm.runtime.tensor(array) for array in arrays]
    for name in PARTS[:-1]:
        values = list(machine[name](*values))
    return arrays_of(machine[PARTS[-1]](*values))


def check(mod, **options):
    """Split, and the same as before: `main` to the bit, the parts by themselves to a few."""
    done = split(mod, **options)
    rng = np.random.default_rng(0)
    arrays = [
        (rng.normal(0, 20, [int(d) for d in p.ty.shape.values])).astype(str(p.ty.dtype))
        for p in mod["main"].params
    ]
    want = run(mod, *arrays)
    for got, array in zip(run(done, *arrays), want, strict=True):
        np.testing.assert_array_equal(got, array)
    for got, array in zip(in_turns(done, *arrays), want, strict=True):
        np.testing.assert_allclose(got, array, rtol=1e-6)
    return done


def test_split_is_this():
    x = var("x")
    given = module(lambda emit, x: real(emit(square(emit(codes(x))))), x)
    done = check(given, integral=True)
    assert operators(done, "quantize_inputs") == ["divide", "round", "clip", "astype"]
    assert operators(done, "quantized_main") == ["astype", "multiply"]
    assert operators(done, "dequantize_outputs") == ["astype", "multiply"]
    assert [types(done, name) for name in PARTS] == [
        (["float32"], ["int8"]),
        (["int8"], ["int32"]),
        (["int32"], ["float32"]),
    ]
    called = [
        b.value.op.name_hint for b in bindings(done["main"]) if isinstance(b.value, relax.Call)
    ]
    assert called == list(PARTS)
    # In one piece again, it is what it was.
    whole = inlined(done)["main"]
    before = relax.transform.CanonicalizeBindings()(given)["main"]
    after = relax.transform.CanonicalizeBindings()(tvm.IRModule({"main": whole}))["main"]
    assert [op_name(b.value) for b in bindings(after) if op_name(b.value)] == [
        op_name(b.value) for b in bindings(before) if op_name(b.value)
    ]
    assert str(whole.ret_ty) == str(given["main"].ret_ty)


def test_split_twice_is_split_once():
    done = split(module(lambda emit, x: real(layer(emit, x)), var("x")))
    tvm.ir.assert_structural_equal(split(done), done)


def test_inputs_come_in_their_order_whoever_reads_them_first():
    def network(emit, x, y):
        later, sooner = layer(emit, y), layer(emit, x)
        return real(emit(OP.subtract(later, sooner)))

    done = check(module(network, var("x"), var("y")), integral=True)
    assert [str(p.name) for p in done["quantize_inputs"].params] == ["x", "y"]
    steps = [b for b in bindings(done["quantize_inputs"]) if isinstance(b.value, relax.Tuple)]
    fields = steps[-1].value.fields
    reads = {b.var: b.value for b in bindings(done["quantize_inputs"])}

    def source(value):
        while value in reads:
            value = reads[value].args[0]
        return str(value.name)

    assert [source(field) for field in fields] == ["x", "y"]


def test_one_conversion_serves_all_its_readers_and_each_grid_has_its_own():
    def network(emit, x):
        first, second = emit(codes(x, 0.5)), emit(codes(x, 0.125))
        return real(emit(OP.add(emit(OP.add(square(first), square(first))), square(second))))

    done = check(module(network, var("x")), integral=True)
    assert types(done, "quantized_main") == (["int8", "int8"], ["int32"])


def test_an_input_that_nothing_converts_is_handed_on():
    def network(emit, x, ids):
        return relax.Tuple([emit(OP.exp(x)), emit(OP.add(ids, ids)), real(layer(emit, x))])

    done = check(module(network, var("x"), var("ids", (2, 3), "int64")))
    assert types(done, "quantized_main") == (
        ["float32", "int8", "int64"],
        ["float32", "int64", "int32"],
    )


def test_an_input_that_nothing_reads_ends_before_the_middle():
    done = check(module(lambda emit, x, _unused: real(layer(emit, x)), var("x"), var("u")))
    assert types(done, "quantize_inputs") == (["float32", "float32"], ["int8"])


def test_a_network_in_float_is_all_middle():
    done = check(module(lambda _emit, x, y: OP.add(x, y), var("x"), var("y")))
    assert [operators(done, name) for name in PARTS] == [[], ["add"], []]
    assert types(done, "quantized_main") == (["float32", "float32"], ["float32"])


def test_outputs_that_meet_are_one_conversion():
    def network(emit, x, y):
        return OP.add(real(layer(emit, x)), real(layer(emit, y), 0.125))

    done = check(module(network, var("x"), var("y")), integral=True)
    assert operators(done, "dequantize_outputs")[-1] == "add"
    assert types(done, "dequantize_outputs") == (["int32", "int32"], ["float32"])


def test_tuples_within_tuples_keep_their_form():
    def network(emit, x):
        a = layer(emit, x)
        floats = emit(real(a))
        return relax.Tuple([floats, relax.Tuple([x, a, relax.const(1.0)]), emit(OP.exp(floats))])

    given = module(network, var("x"))
    done = check(given)
    assert str(done["main"].ret_ty) == str(given["main"].ret_ty)
    assert types(done, "quantized_main")[1] == ["float32", "int32", "float32"]


def test_the_narrowest_integers_on_the_way_are_handed_over():
    table = relax.const(np.linspace(-1, 1, 256).astype("float32"))

    def network(emit, x):
        small = emit(OP.negative(emit(codes(x))))
        index = emit(OP.add(emit(OP.astype(small, "int32")), relax.const(128)))
        return OP.take(table, index, axis=0, mode="clip")

    done = check(module(network, var("x")), integral=True)
    assert types(done, "dequantize_outputs") == (["int8"], ["float32"])


def test_values_that_are_moved_or_clamped_at_an_end_are_converted_there():
    square_input = module(
        lambda emit, x: OP.reshape(
            OP.concat([real(layer(emit, OP.nn.relu(OP.permute_dims(x)))), real(layer(emit, x))]),
            (18,),
        ),
        var("x", (3, 3)),
    )
    done = check(square_input, integral=True)
    assert types(done, "quantized_main") == (["int8", "int8"], ["int32", "int32"])


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda emit, x: real(layer(emit, emit(OP.exp(x)))), r"relax\.exp .* dtype=\"float32\""),
        (lambda emit, x: OP.exp(real(layer(emit, x))), r"relax\.exp .* dtype=\"float32\""),
        (
            lambda emit, x: real(layer(emit, emit(OP.exp(real(layer(emit, x)))))),
            r"relax\.exp .* dtype=\"float32\"",
        ),
        (lambda emit, x: OP.add(real(layer(emit, x)), x), r"relax\.add .* dtype=\"float32\""),
        (lambda emit, x: relax.Tuple([real(layer(emit, x)), x]), "Nothing converts 'x'"),
        (lambda _emit, x: OP.add(x, x), r"relax\.add .* dtype=\"float32\""),
    ],
    ids=["before", "behind", "between", "beside", "input", "float"],
)
def test_what_is_not_integral_is_refused_by_name(network, message):
    given = module(network, var("x"))
    with pytest.raises(ConfigError, match=message):
        split(given, integral=True)
    check(given)


def test_the_reason_for_float_stands_in_the_refusal():
    builder = relax.BlockBuilder()
    x, weight = var("x", (1, 4)), relax.const(np.eye(4, dtype="float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(OP.nn.softmax(builder.emit(OP.matmul(x, weight))))
            result = builder.emit_output(OP.matmul(first, weight))
        builder.emit_func_output(result)
    int8 = tvm_quant.quantize(builder.get())
    with pytest.raises(ConfigError, match=r"relax\.nn\.softmax .*no integer form"):
        split(int8, integral=True)


@pytest.mark.parametrize("flat", [False, True])
def test_sizes_that_are_not_known_yet_stay_so(flat):
    n = tvm.tirx.Var("n", "int64")

    def network(emit, x):
        middle = emit(OP.reshape(emit(codes(x)), (n * 2, 3))) if flat else emit(codes(x))
        return OP.reshape(real(emit(square(middle))), (n * 6,) if not flat else (n * 2, 3, 1))

    given = module(network, var("x", (n, 6)))
    done = split(given)
    for count in (1, 5):
        data = np.random.default_rng(count).normal(0, 9, (count, 6)).astype("float32")
        (want,) = run(given, data)
        np.testing.assert_array_equal(run(done, data)[0], want)
        np.testing.assert_array_equal(in_turns(done, data)[0], want)


def test_other_functions_stay_and_called_ones_are_part_of_the_network():
    builder = relax.BlockBuilder()
    x, y = var("x"), var("y")
    with builder.function("helper", [y]):
        builder.emit_func_output(builder.emit(square(builder.emit(codes(y)))))
    helper = builder.get().get_global_var("helper")
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(real(builder.emit(relax.Call(helper, [x])))))
    done = check(builder.get(), integral=True)
    assert sorted(g.name_hint for g in done.get_global_vars()) == sorted(["helper", "main", *PARTS])


@given(network=random_networks(max_steps=5))
@settings(max_examples=10, deadline=None)
def test_a_random_network_computes_the_same_bits_split(network: RandomNetwork):
    names = [str(param.name) for param in network.mod["main"].params]
    int8 = tvm_quant.quantize(network.mod, None, [dict(zip(names, network.inputs, strict=True))])
    done = split(int8)
    want = run(int8, *network.inputs)
    for got, array in zip(run(done, *network.inputs), want, strict=True):
        np.testing.assert_array_equal(got, array)
    for got, array in zip(in_turns(done, *network.inputs), want, strict=True):
        np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)
