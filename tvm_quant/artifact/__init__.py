"""The `.tvmq` file: quantized module, config, calibration table and provenance in one."""

from tvm_quant.artifact.file import SUFFIX, Artifact
from tvm_quant.artifact.provenance import Provenance, sha256_of
from tvm_quant.artifact.table import QuantizerRow, calibration_table

__all__ = [
    "SUFFIX",
    "Artifact",
    "Provenance",
    "QuantizerRow",
    "calibration_table",
    "sha256_of",
]
