"""RoundWeights: put each weight on its grid so that the layer's output stays right.

Before    y = R.nn.conv2d(q, simulated_quantize(w, t)) + b
After     y = R.nn.conv2d(q, simulated_quantize(w', t)) + b'    w' = codes * t

Nearest codes err the least in the weights, which is not what counts: where inputs are alike, errors
of opposite sign cancel. Codes are chosen one after the other, each making up for the errors so far
(weight_rounding/error_feedback.py), by the covariance of what the float layer reads on calibration
samples, which Profile gathers beside its statistics. The mean goes into the bias:
b' = b - E[x] (w' - nearest(w)), so that the bias correction made for the nearest codes stays right.

Where weights have few bits and no estimator of their scales is named, the steps are chosen here,
too: those with which the output errs the least (weight_rounding/best_shares.py).

Weights that several calls read, and layers of a symbolic size, are rounded to nearest.

Needs calibrated quantizers; comes after CorrectBias, which has to see the float weights.

Source: Frantar et al., arXiv:2210.17323.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import tvm
from threadpoolctl import threadpool_limits
from tvm import IRModule

from tvm_quant.config import QuantizeConfig, WeightRounding
from tvm_quant.dataset.check import is_batched
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import io_signature
from tvm_quant.ir.signature import main_function
from tvm_quant.op import spec_of
from tvm_quant.transform.calibrate_weights import chooses_steps, power_of_two_scales
from tvm_quant.transform.calibration_samples import SAMPLES, Batches, Chosen
from tvm_quant.transform.correct_bias import add_to_biases
from tvm_quant.transform.profiling import ordered_map
from tvm_quant.transform.quantizers import set_constants, set_scales, strip_quantizers
from tvm_quant.transform.weight_rounding import (
    SHARES,
    LayerInputs,
    Moments,
    Rounded,
    WeightLayer,
    gather_moments,
    weight_layers,
)


@tvm.transform.module_pass(opt_level=0, name="RoundWeights")
class RoundWeights:
    """Choose the codes of the weights of every quantized convolution and matmul.

    Args:
        config: `weight_rounding`; its hardware row may limit pairs of codes.
        dataset: calibration batches by input name, for layers that `inputs` does not know; without
            either, codes are the nearest.
        executor: runs the network on its workers; None works in threads, as `Profile` does.
        progress: show a bar.
        inputs: what Profile saw the layers read: spares running the network again.
    """

    def __init__(
        self,
        config: QuantizeConfig | None = None,
        dataset: Batches | None = None,
        *,
        executor: Executor | None = None,
        progress: bool = False,
        inputs: LayerInputs | None = None,
    ):
        self.config = config or QuantizeConfig()
        self.largest_pair = hardware_row(self.config.hardware).largest_pair
        self.dataset = dataset
        self.executor = executor
        self.progress = progress
        self.inputs = inputs or LayerInputs()

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        if self.config.weight_rounding is WeightRounding.NEAREST:
            return mod
        layers = weight_layers(main_function(mod))
        inputs = self._inputs(mod, layers)
        found = [name for name in layers if name in inputs.moments and inputs.moments[name].count]
        if not found:
            return mod
        with threadpool_limits(1, user_api="blas"):  # threads work on layers side by side
            results = ordered_map(
                lambda name: self._rounded(layers[name], inputs.of(layers[name])), found, None
            )
            rounded = dict(zip(found, results, strict=True))
        weights = {layers[name].weight: found for name, found in rounded.items()}
        mod = set_constants(mod, {name: found.weight for name, found in weights.items()})
        mod = set_scales(mod, {name: found.scale for name, found in weights.items()})
        return add_to_biases(mod, {name: -found.change for name, found in rounded.items()})

    def _inputs(self, mod: IRModule, layers: Mapping[str, WeightLayer]) -> LayerInputs:
        """What each layer reads; what is not known is measured where there is data."""
        known = set(layers) <= set(self.inputs.moments)
        if known or self.dataset is None or not layers:
            return self.inputs
        batches = Chosen(self.dataset, SAMPLES, is_batched(io_signature(mod)))
        # Threads work on samples side by side; those of BLAS would wait for them.
        with threadpool_limits(1, user_api="blas"):
            moments = gather_moments(
                strip_quantizers(mod),
                {name: layer.reading for name, layer in layers.items()},
                list(batches),
                executor=self.executor,
                progress=self.progress,
            )
        return LayerInputs(moments=moments)

    def _rounded(self, layer: WeightLayer, moments: Moments) -> Rounded:
        return layer.rounded(moments, self._shares(layer), self.largest_pair)

    def _shares(self, layer: WeightLayer) -> Sequence[float]:
        """Steps to try, as shares of the calibrated one."""
        chooses = chooses_steps(self.config, spec_of(layer.quantizer), *layer.names)
        return SHARES if chooses and not power_of_two_scales(self.config) else (1.0,)
