import logging

import numpy as np
import pytest
import tvm
from numpy.testing import assert_allclose
from tvm import relax
from tvm.relax import op as R

from plain_tvm import build
from tvm_quant.config import LayerConfig, QuantizeConfig, ZeroData
from tvm_quant.errors import CalibrationError, ConfigError
from tvm_quant.estimator import ActivationEstimator, estimator_names
from tvm_quant.ir import with_node_names
from tvm_quant.op import Kind, QuantSpec, is_calibrated, simulated_quantize
from tvm_quant.op.simulated_quantize import calibrated, scale_of
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import Annotate, CalibrateActivations
from tvm_quant.transform.profiling import fingerprint
from tvm_quant.transform.quantizers import quantizers
from tvm_quant.transform.range_records import CalibrationWarning, range_records

RNG = np.random.default_rng(0)
KERNEL = relax.const(RNG.normal(size=(4, 3, 3, 3)).astype("float32"))
NEXT = relax.const(RNG.normal(size=(2, 4, 3, 3)).astype("float32"))
U8 = QuantSpec(signed=False, symmetric=False)
NAMES = estimator_names(ActivationEstimator)


def network(middle=R.nn.relu):
    """conv, `middle`, conv: quantizers x_q and mid_q."""

    def body(b, x):
        y = b.emit(R.nn.conv2d(x, KERNEL), "conv1")
        y = b.emit(middle(y), "mid")
        return b.emit(R.nn.conv2d(y, NEXT), "conv2")

    mod = build(body, x=(1, 3, 8, 8))
    mod["main"] = with_node_names(mod["main"], {"mid": "block/Relu", "conv2": "block/Conv"})
    return mod


def statistics(samples=16, **tensors):
    """Of {name: array}, sample by sample."""
    return Statistics(
        {name: TensorStatistics.of(np.float32(v), samples=len(v)) for name, v in tensors.items()},
        samples=samples,
    )


STATISTICS = statistics(
    x=RNG.normal(size=(16, 192)), mid=np.maximum(RNG.normal(size=(16, 144)) * 3, 0)
)


def calibrate(stats, config=None, mod=None):
    config = config or QuantizeConfig()
    return CalibrateActivations(stats, config)(Annotate(config)(mod or network()))


def scales(mod):
    """{quantizer: (scale, zero point)} of the calibrated ones."""
    return {q.name: scale_of(q.call) for q in quantizers(mod["main"]) if is_calibrated(q.call)}


def test_inputs_and_activations_get_their_scales_and_weights_do_not():
    mod = calibrate(STATISTICS, QuantizeConfig(activation_estimator="minmax"))
    found = scales(mod)
    assert set(found) == {"x_q", "mid_q"}
    assert_allclose(found["mid_q"][0], STATISTICS["mid"].maximum / 255, rtol=1e-6)
    assert found["mid_q"][1] == 0
    span = STATISTICS["x"].maximum - STATISTICS["x"].minimum
    assert_allclose(found["x_q"][0], span / 255, rtol=1e-6)


def test_scales_that_are_there_stay():
    mod = calibrate(STATISTICS)
    tvm.ir.assert_structural_equal(CalibrateActivations(statistics(), QuantizeConfig())(mod), mod)


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_works_in_the_pass(name):
    mod = calibrate(STATISTICS, QuantizeConfig(activation_estimator=name))
    assert {record.estimator for record in range_records(mod["main"]).values()} == {name}
    assert all(scale > 0 for scale, _ in scales(mod).values())


@pytest.mark.parametrize("pattern", ["block/Conv", "block/*"])
def test_an_override_selects_another_estimator_for_the_inputs_of_one_layer(pattern):
    overrides = {pattern: LayerConfig(activation_estimator="percentile")}
    records = range_records(calibrate(STATISTICS, QuantizeConfig(overrides=overrides))["main"])
    assert (records["x_q"].estimator, records["mid_q"].estimator) == ("robust", "percentile")


def test_options_reach_the_estimator():
    options = {"percentile": {"percentile": 60.0}}
    config = QuantizeConfig(activation_estimator="percentile", estimator_options=options)
    assert range_records(calibrate(STATISTICS, config)["main"])["x_q"].high < 0.5


def test_fewer_bits_by_layer_make_larger_steps():
    overrides = {"block/Conv": LayerConfig(nbit_activation=4)}
    config = QuantizeConfig(activation_estimator="minmax", overrides=overrides)
    scale, _ = scales(calibrate(STATISTICS, config))["mid_q"]
    assert_allclose(scale, STATISTICS["mid"].maximum / 15, rtol=1e-6)


@pytest.mark.parametrize("options", [{"power_of_two_scales": True}, {"hardware": "vta"}])
def test_hardware_that_shifts_gets_powers_of_two(options):
    for scale, _ in scales(calibrate(STATISTICS, QuantizeConfig(**options))).values():
        assert np.frexp(scale)[0] == 0.5


def test_quantizers_of_one_group_share_the_range_that_covers_all():
    def body(b, x, y):
        x = b.emit(simulated_quantize(x, spec=U8, kind=Kind.ACTIVATION, group=0), "x_q")
        y = b.emit(simulated_quantize(y, spec=U8, kind=Kind.ACTIVATION, group=0), "y_q")
        return b.emit(R.concat([x, y], axis=1))

    mod = build(body, x=(1, 4), y=(1, 4))
    stats = statistics(x=RNG.uniform(0, 1, (16, 4)), y=RNG.uniform(-5, 0, (16, 4)))
    found = scales(CalibrateActivations(stats, QuantizeConfig(activation_estimator="minmax"))(mod))
    assert found["x_q"] == found["y_q"]
    span = stats["x"].maximum - stats["y"].minimum
    assert_allclose(found["x_q"][0], span / 255, rtol=1e-6)


def test_one_scale_per_channel_where_the_grid_asks_for_it():
    spec = QuantSpec(signed=False, symmetric=False, axis=1)
    data = RNG.uniform(0, 1, (16, 3, 5)) * np.array([1, 10, 0])[:, None]

    def body(b, x):
        return b.emit(simulated_quantize(x, spec=spec, kind=Kind.ACTIVATION), "x_q")

    mod = build(body, x=(1, 3, 5))
    stats = Statistics({"x": TensorStatistics.of(np.float32(data), samples=16, axis=1)}, samples=16)
    config = QuantizeConfig(activation_estimator="minmax")
    scale, zero_point = scales(CalibrateActivations(stats, config)(mod))["x_q"]
    assert scale.shape == zero_point.shape == (1, 3, 1)
    expected = [data[:, 0].max(), data[:, 1].max(), data.max()]  # a silent channel: the tensor's
    assert_allclose(scale.ravel() * 255, expected, rtol=1e-5)
    with pytest.raises(
        CalibrationError, match=r"No statistics by channel \(axis 1\) for tensor 'x'"
    ):
        CalibrateActivations(statistics(x=data), config)(mod)


def test_a_constant_operand_is_its_own_statistics():
    value = np.float32([[0.0, 2.55]])

    def body(b, x):
        c = simulated_quantize(relax.const(value), spec=U8, kind=Kind.ACTIVATION)
        return b.emit(R.add(x, b.emit(c, "c_q")))

    config = QuantizeConfig(activation_estimator="minmax")
    mod = CalibrateActivations(statistics(), config)(build(body, x=(1, 2)))
    assert_allclose(scales(mod)["c_q"][0], 0.01, rtol=1e-6)


# Without data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("middle", "low", "high"),
    [
        (R.nn.relu, 0, 8),
        (R.sigmoid, 0, 1),
        (R.tanh, -1, 1),
        (lambda y: R.clip(y, 0, 6), 0, 6),
        (lambda y: R.clip(y, 1, 20), 0, 8),
        (R.nn.silu, -8, 8),
    ],
)
def test_without_data_the_range_is_global_scale_within_what_the_operator_can_give(
    middle, low, high
):
    record = range_records(calibrate(None, mod=network(middle))["main"])["mid_q"]
    assert (record.estimator, record.low, record.high) == ("global_scale", low, high)
    assert record.minimum is None


def test_global_scale_is_configurable():
    records = range_records(calibrate(None, QuantizeConfig(global_scale=2.0))["main"])
    assert (records["x_q"].low, records["x_q"].high) == (-2.0, 2.0)


# Reports -----------------------------------------------------------------------------------------


def with_outlier():
    loud = RNG.normal(size=(16, 192))
    loud[3, 0] = 1e4
    return statistics(x=loud, mid=np.maximum(RNG.normal(size=(16, 144)), 0))


def test_a_left_out_sample_is_logged_and_recorded(caplog):
    with caplog.at_level(logging.WARNING, logger="tvm_quant"):
        mod = calibrate(with_outlier())
    assert range_records(mod["main"])["x_q"].dropped == (3,)
    assert range_records(mod["main"])["mid_q"].dropped == ()
    assert "sample 3 is an outlier in 1 of 2 tensors" in caplog.text
    assert scales(mod)["x_q"][0] < 0.05


def test_records_survive_saving_and_loading():
    mod = calibrate(with_outlier())
    loaded = tvm.ir.load_json(tvm.ir.save_json(mod))
    assert range_records(loaded["main"]) == range_records(mod["main"])


def test_clean_data_is_reported_with_its_extremes(caplog):
    record = range_records(calibrate(STATISTICS)["main"])["mid_q"]
    assert (record.minimum, record.maximum) == (0.0, STATISTICS["mid"].maximum)
    assert caplog.text == ""


# What may go wrong -------------------------------------------------------------------------------


def test_missing_statistics_name_tensor_and_nodes():
    expected = (
        "No range for tensor 'mid' of node 'block/Relu', input of 'block/Conv': no statistics of "
        "it among the 1 tensors profiled"
    )
    with pytest.raises(CalibrationError, match=expected):
        calibrate(statistics(x=RNG.normal(size=(16, 4))))


def test_a_tensor_that_never_ran_is_named():
    stats = statistics(x=RNG.normal(size=(16, 4)), mid=np.zeros((16, 0)))
    with pytest.raises(CalibrationError, match=r"'mid' of node 'block/Relu'.*so it never ran"):
        calibrate(stats)


def test_statistics_of_another_network_are_refused():
    stats = statistics(x=RNG.normal(size=(16, 4)), mid=RNG.normal(size=(16, 4)))
    stats.fingerprint = "0123456789abcdef"
    with pytest.raises(CalibrationError, match="were gathered on another network"):
        calibrate(stats)
    stats.fingerprint = fingerprint(network())
    calibrate(stats)


def test_an_input_of_zeros_is_refused():
    stats = statistics(x=np.zeros((16, 4)), mid=RNG.normal(size=(16, 4)))
    with pytest.raises(
        CalibrationError, match=r"No range for tensor 'x' .*zero in every calibration"
    ):
        calibrate(stats)


def test_zero_tensors_are_named_in_one_warning_and_get_scale_one():
    stats = statistics(x=np.zeros((16, 4)), mid=np.zeros((16, 4)))
    with pytest.warns(
        CalibrationWarning, match=r"tensor 'x' .*; tensor 'mid' of node 'block/Relu'"
    ) as seen:
        mod = calibrate(stats, QuantizeConfig(on_zero=ZeroData.WARN))
    assert len(seen) == 1
    assert [float(scale) for scale, _ in scales(mod).values()] == [1.0, 1.0]


def test_an_unknown_estimator_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'minimax' is no estimator .*'robust', 'minmax'"):
        calibrate(STATISTICS, QuantizeConfig(activation_estimator="minimax"))


def test_calibrated_calls_keep_grid_kind_and_group():
    call = simulated_quantize(relax.const(np.float32(1)), spec=U8, kind=Kind.ACTIVATION, group=7)
    done = calibrated(call, 0.5, 3)
    assert all(done.attrs[name] == call.attrs[name] for name in ("bits", "kind", "group", "axis"))
