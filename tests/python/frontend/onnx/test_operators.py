"""The converters that replace TVM's, against ONNX Runtime; several nodes to a model."""

import numpy as np
import pytest
from onnx import helper

from onnx_models import loads_like_onnxruntime, model, node
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load

RNG = np.random.default_rng(0)
IMAGE = {"x": ["N", 4, 9, 10]}


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def variants(operator, *, opset=17, inputs=IMAGE, weights=None, **cases):
    """A model with one node of an operator for each case: (inputs, attributes)."""
    nodes = [node(operator, names, key, **attributes) for key, (names, attributes) in cases.items()]
    return model(nodes, inputs, weights, opset=opset, outputs=list(cases))


def test_clip_with_attributes_becomes_relax_clip():
    cases = {"both": (["x"], {"min": -0.5, "max": 0.7}), "low": (["x"], {"min": -0.5})}
    assert loads_like_onnxruntime(variants("Clip", opset=6, **cases)) == {"clip"}


def test_clip_with_constant_inputs_becomes_relax_clip_whatever_is_missing():
    weights = {"low": np.float32(-0.3), "high": np.float32(0.5), "nan": np.float32(np.nan)}
    cases = {
        "both": (["x", "low", "high"], {}),
        "no_low": (["x", "", "high"], {}),
        "no_high": (["x", "low"], {}),
        "open": (["x", "nan", "high"], {}),
    }
    assert loads_like_onnxruntime(variants("Clip", weights=weights, **cases)) == {"clip"}


def test_clip_with_computed_bounds_becomes_maximum_and_minimum():
    source = model([node("Clip", ["x", "low", "high"])], {**IMAGE, "low": [], "high": []})
    assert loads_like_onnxruntime(source) == {"maximum", "minimum"}


def test_pad_becomes_nn_pad_in_every_mode():
    weights = {
        "pads": np.array([0, 0, 1, 2, 0, 0, 3, 1]),
        "some": np.array([1, 2, 3, 4]),
        "axes": np.array([2, -1]),
        "value": np.float32(2.5),
    }
    cases = {
        mode: (["x", "pads"], {"mode": mode}) for mode in ("constant", "reflect", "edge", "wrap")
    }
    cases["axes_given"] = (["x", "some", "", "axes"], {})
    cases["valued"] = (["x", "pads", "value"], {})
    assert loads_like_onnxruntime(variants("Pad", opset=19, weights=weights, **cases)) == {"nn.pad"}


def test_negative_pads_cut():
    weights = {"pads": np.array([0, 0, -1, 2, 0, 0, 3, -2])}
    source = variants("Pad", weights=weights, y=(["x", "pads"], {}))
    assert loads_like_onnxruntime(source) == {"strided_slice", "nn.pad"}


def test_conv_with_automatic_padding_has_explicit_pads():
    cases = {
        f"{mode}_{stride}": (["x", "w", "b"], {"auto_pad": mode, "strides": [stride, stride]})
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
        for stride in (1, 2, 3)
    }
    weights = {"w": normal(6, 4, 3, 3), "b": normal(6)}
    assert loads_like_onnxruntime(variants("Conv", weights=weights, **cases)) == {
        "nn.conv2d",
        "add",
    }


def test_conv_in_one_and_three_dimensions_with_groups():
    nodes = [
        node("Conv", ["line", "w1"], "y1", group=2, pads=[1, 0], dilations=[2]),
        node("Conv", ["volume", "w3", "b"], "y3", pads=[1] * 6, strides=[1, 2, 1]),
    ]
    weights = {"w1": normal(6, 2, 3), "w3": normal(6, 4, 3, 3, 3), "b": normal(6)}
    inputs = {"line": ["N", 4, 9], "volume": ["N", 4, 5, 6, 7]}
    source = model(nodes, inputs, weights, outputs=["y1", "y3"])
    assert loads_like_onnxruntime(source) == {"nn.conv1d", "nn.conv3d", "add"}


def test_conv_transpose_with_groups_and_bias_is_right():
    nodes, weights = [], {}
    for groups, out in ((1, 6), (2, 3), (4, 2)):
        weights |= {f"w{groups}": normal(4, out, 3, 3), f"b{groups}": normal(out * groups)}
        names = ["x", f"w{groups}", f"b{groups}"]
        attributes = {"strides": [2, 2], "pads": [1, 1, 0, 0], "output_padding": [1, 0]}
        nodes.append(node("ConvTranspose", names, f"y{groups}", group=groups, **attributes))
    source = model(nodes, IMAGE, weights, outputs=["y1", "y2", "y4"])
    assert loads_like_onnxruntime(source) == {"nn.conv2d_transpose", "add"}


def test_conv_transpose_takes_its_padding_from_the_shape_of_the_output():
    cases = {
        "shape": {"output_shape": [18, 20]},
        "upper": {"auto_pad": "SAME_UPPER"},
        "lower": {"auto_pad": "SAME_LOWER"},
        "dilated": {"dilations": [2, 2]},
    }
    cases = {key: (["x", "w"], {"strides": [2, 2], **more}) for key, more in cases.items()}
    source = variants("ConvTranspose", weights={"w": normal(4, 3, 3, 3)}, **cases)
    assert loads_like_onnxruntime(source) == {"nn.conv2d_transpose"}


@pytest.mark.parametrize(("operator", "expected"), [("MaxPool", "max"), ("AveragePool", "avg")])
def test_pools_with_automatic_padding_and_ceil_mode(operator, expected):
    same = {"kernel_shape": [3, 3], "strides": [2, 2]}
    odd = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}
    cases = {
        "upper": (["x"], {"auto_pad": "SAME_UPPER", **same}),
        "lower": (["x"], {"auto_pad": "SAME_LOWER", **same}),
        "valid": (["x"], {"auto_pad": "VALID", **same}),
        "floor": (["x"], odd),
        "ceil": (["x"], {"ceil_mode": 1, **odd}),
    }
    assert loads_like_onnxruntime(variants(operator, **cases)) == {f"nn.{expected}_pool2d"}


def test_average_pool_counts_padding_where_asked():
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    source = variants("AveragePool", y=(["x"], {"count_include_pad": 1, **attributes}))
    assert loads_like_onnxruntime(source) == {"nn.avg_pool2d"}


def test_prelu_takes_slopes_of_every_shape():
    shapes = {"c11": (4, 1, 1), "nc11": (1, 4, 1, 1), "last": (10,), "plane": (9, 10)}
    weights = {name: np.abs(normal(*shape)) for name, shape in shapes.items()}
    cases = {f"y_{name}": (["x", name], {}) for name in shapes}
    found = loads_like_onnxruntime(variants("PRelu", weights=weights, **cases))
    assert found == {"nn.prelu", "less", "multiply", "where"}  # the plane is written out


def test_prelu_with_one_slope_is_leaky_relu():
    weights = {
        "one": np.float32([0.1]),
        "scalar": np.float32(0.1),
        "equal": np.full((4, 1, 1), 0.1, "f"),
    }
    cases = {f"y_{name}": (["x", name], {}) for name in weights}
    assert loads_like_onnxruntime(variants("PRelu", weights=weights, **cases)) == {"nn.leakyrelu"}


def test_a_prelu_slope_that_only_fits_the_channels_is_per_channel():
    slope = np.array([0.5, 0.25, 0.125, 0], np.float32)
    mod, _ = load(variants("PRelu", weights={"slope": slope}, y=(["x", "slope"], {})))
    (call,) = [b.value for b in mod["main"].body.blocks[0].bindings if hasattr(b.value, "op")]
    assert (str(call.op.name), call.attrs.axis) == ("relax.nn.prelu", 1)


def test_gather_leaves_no_shape_arithmetic():
    weights = {"scalar": np.int64(2), "negative": np.int64(-1), "some": np.array([0, 3, -2])}
    cases = {f"y_{name}": (["x", name], {"axis": 1}) for name in weights}
    assert loads_like_onnxruntime(variants("Gather", weights=weights, **cases)) == {"take"}


def test_gather_from_a_table_by_computed_indices_is_one_take():
    source = model(
        [node("Gather", ["table", "ids"])], {"ids": ["int64", "N", 3]}, {"table": normal(5, 8)}
    )
    assert loads_like_onnxruntime(source) == {"take"}


def test_dropout_and_identity_vanish():
    nodes = [
        node("Dropout", ["x"], "a"),
        node("Identity", ["a"], "b"),
        helper.make_node("Dropout", ["b"], ["c", "mask"]),
        node("Cast", ["mask"], "ones", to=1),
        node("Add", ["c", "ones"], "y"),
    ]
    assert "nn.dropout" not in loads_like_onnxruntime(model(nodes, IMAGE))


def test_tile_einsum_and_upsample_are_relax_operators():
    nodes = [
        node("Tile", ["x", "repeats"], "tiled"),
        node("Einsum", ["x", "w"], "sum", equation="nchw, oc -> nohw"),
    ]
    weights = {"repeats": np.array([1, 2, 1, 2]), "w": normal(5, 4)}
    source = model(nodes, IMAGE, weights, outputs=["tiled", "sum"])
    assert loads_like_onnxruntime(source) == {"tile", "einsum"}
    scales = {"scales": np.array([1, 1, 2, 3], np.float32)}
    source = variants("Upsample", opset=9, weights=scales, y=(["x", "scales"], {"mode": "nearest"}))
    assert loads_like_onnxruntime(source) == {"image.resize2d"}


def test_an_operator_with_a_definition_in_simpler_ones_is_written_out():
    assert "nn.relu" in loads_like_onnxruntime(variants("Celu", y=(["x"], {"alpha": 2.0})))


def test_shape_arithmetic_on_static_shapes_is_folded():
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "two"], "height"),
        node("Mod", ["height", "three"], "rest"),
        node("Sub", ["height", "rest"], "even"),
        node("Div", ["even", "three"], "third"),
        node("Unsqueeze", ["third", "axis"], "last"),
        node("Concat", ["minus_one", "last"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    weights = {
        "two": np.int64(2),
        "three": np.int64(3),
        "axis": np.array([0]),
        "minus_one": np.array([-1]),
    }
    source = model(nodes, {"x": [2, 4, 9, 10]}, weights)
    assert loads_like_onnxruntime(source) == {"reshape"}


def test_a_flatten_written_as_shape_arithmetic_keeps_an_open_batch():
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "batch"),
        node("Concat", ["batch", "minus_one"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    weights = {"zero": np.array([0]), "minus_one": np.array([-1])}
    assert loads_like_onnxruntime(model(nodes, IMAGE, weights)) == {"reshape"}


def test_pads_that_are_computed_are_refused_with_the_node():
    source = model([node("Pad", ["x", "pads"])], {"x": [1, 4], "pads": ["int64", 4]})
    with pytest.raises(FrontendError, match=r"'y' \(Pad.*computed at run time"):
        load(source)


def test_automatic_padding_of_an_open_size_is_refused_with_the_way_out():
    source = model(
        [node("Conv", ["x", "w"], auto_pad="SAME_UPPER", strides=[2, 2])],
        {"x": [1, 4, "H", "W"]},
        {"w": normal(6, 4, 3, 3)},
    )
    with pytest.raises(FrontendError, match=r"size that is open.*shapes=\{"):
        load(source)
    mod, _ = load(source, shapes={"x": (1, 4, 9, 9)})
    assert [int(d) for d in mod["main"].ret_ty.shape.values] == [1, 6, 5, 5]
