"""The network that is searched: prepared once, profiled once, calibrated in many ways."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import tvm
from tvm import IRModule

from tvm_quant.config import BiasCorrection, QuantizeConfig, WeightRounding
from tvm_quant.dataset import CheckedDataset, as_dataset
from tvm_quant.ir import io_signature
from tvm_quant.quantize import data_inputs, pipeline
from tvm_quant.search.layer_groups import LayerGroup, layer_groups
from tvm_quant.statistics import Statistics
from tvm_quant.transform import Annotate, Equalize, Prepare
from tvm_quant.transform.profiling import profiled_tensors
from tvm_quant.transform.weight_rounding import Moments

Array = npt.NDArray[Any]


class Subject:
    """A float network with its data.

    Args:
        mod, params, dataset, config, executor, progress, statistics: as for `tvm_quant.quantize`;
            here the data set is needed.
    """

    def __init__(
        self,
        mod: IRModule,
        params: Mapping[str, Array] | None,
        dataset: Any,
        config: QuantizeConfig | None = None,
        *,
        executor: Executor | None = None,
        progress: bool = False,
        statistics: Statistics | None = None,
    ):
        config = config or QuantizeConfig()
        self.dataset = self._opened(dataset, mod, params, config)
        self.module: IRModule = tvm.transform.Sequential([Prepare(params), Equalize(config)])(mod)
        self.config = config
        self.executor = executor
        self.progress = progress
        self.statistics = Statistics() if statistics is None else statistics
        self._moments: dict[str, Moments] = {}

    def annotated(self, config: QuantizeConfig) -> IRModule:
        """The network with quantizers that are not calibrated."""
        return tvm.transform.Sequential([Annotate(config)])(self.module)

    def groups(self) -> list[LayerGroup]:
        """What the config quantizes, in groups that share their bits."""
        return layer_groups(self.annotated(self.config))

    def quantized(self, config: QuantizeConfig) -> IRModule:
        """The network, quantized; profiles again only if `config` needs other tensors."""
        passes = pipeline(
            replace(config, equalize=False),  # it is done
            None,
            self.dataset,
            self.executor,
            self.progress,
            self._statistics_for(config),
            self._moments,
        )
        return tvm.transform.Sequential(passes, name="tvm_quant")(self.module)

    def calibrated(self, config: QuantizeConfig, *, weights: bool) -> IRModule:
        """The network before integers; without `weights`, these are left unrounded."""
        config = replace(config, simulate=True)
        if not weights:
            config = replace(
                config,
                weight_rounding=WeightRounding.NEAREST,
                bias_correction=BiasCorrection.NONE,
            )
        return self.quantized(config)

    def few(self, samples: int) -> CheckedDataset:
        """The data with so many samples at most: the first, or evenly spaced ones of a folder."""
        return self.dataset.fitted(self.dataset.signature, min(samples, self.dataset.samples))

    def open(self, dataset: Any) -> CheckedDataset:
        """Other data for the network."""
        return as_dataset(dataset, io_signature(self.module), on_bad=self.config.on_bad)

    def _statistics_for(self, config: QuantizeConfig) -> Statistics:
        if not len(self.statistics):
            return self.statistics
        wanted = {tensor.name for tensor in profiled_tensors(self.annotated(config))}
        return self.statistics if wanted <= set(self.statistics) else Statistics()

    @staticmethod
    def _opened(
        dataset: Any, mod: IRModule, params: Mapping[str, Array] | None, config: QuantizeConfig
    ) -> CheckedDataset:
        return as_dataset(
            dataset,
            data_inputs(mod, params),
            limit=config.max_samples,
            on_bad=config.on_bad,
            on_zero=config.on_zero,
        )
