"""Calibration and evaluation data: any form in, checked batches out."""

from tvm_quant.dataset.batching import Batch
from tvm_quant.dataset.checked import CheckedDataset, as_dataset
from tvm_quant.dataset.open_source import SOURCES
from tvm_quant.dataset.preprocess import Color, Interpolation, Layout, Preprocess
from tvm_quant.dataset.source import DatasetWarning

__all__ = [
    "SOURCES",
    "Batch",
    "CheckedDataset",
    "Color",
    "DatasetWarning",
    "Interpolation",
    "Layout",
    "Preprocess",
    "as_dataset",
]
