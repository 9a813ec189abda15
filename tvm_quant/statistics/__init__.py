"""What calibration keeps of the data: mergeable, bounded in size, bit-equal for any sharding."""

from tvm_quant.statistics.container import Statistics
from tvm_quant.statistics.histogram import FloatHistogram, HistogramCounter, Window
from tvm_quant.statistics.tensor import (
    BatchExtremes,
    ChannelStatistics,
    LinearHistogram,
    TensorCollector,
    TensorStatistics,
    interpolate_counts,
)

__all__ = [
    "BatchExtremes",
    "ChannelStatistics",
    "FloatHistogram",
    "HistogramCounter",
    "LinearHistogram",
    "Statistics",
    "TensorCollector",
    "TensorStatistics",
    "Window",
    "interpolate_counts",
]
