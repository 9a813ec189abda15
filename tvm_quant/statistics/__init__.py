"""What calibration keeps of the data: mergeable, bounded in size, bit-equal for any sharding."""

from tvm_quant.statistics.channels import ChannelStatistics
from tvm_quant.statistics.container import Statistics
from tvm_quant.statistics.histogram import FloatHistogram, HistogramCounter, Window
from tvm_quant.statistics.outliers import (
    outlier_magnitudes,
    outlier_samples,
    without_outliers,
)
from tvm_quant.statistics.spread import ChannelSpread, Distribution, join_spreads
from tvm_quant.statistics.tensor import (
    BatchExtremes,
    LinearHistogram,
    TensorCollector,
    TensorStatistics,
    interpolate_counts,
)
from tvm_quant.statistics.thinning import Thinning

__all__ = [
    "BatchExtremes",
    "ChannelSpread",
    "ChannelStatistics",
    "Distribution",
    "FloatHistogram",
    "HistogramCounter",
    "LinearHistogram",
    "Statistics",
    "TensorCollector",
    "TensorStatistics",
    "Thinning",
    "Window",
    "interpolate_counts",
    "join_spreads",
    "outlier_magnitudes",
    "outlier_samples",
    "without_outliers",
]
