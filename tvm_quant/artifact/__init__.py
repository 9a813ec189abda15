"""The `.tvmq` file: quantized module, config, calibration table, network and provenance in one."""

from tvm_quant.artifact.file import SUFFIX, Artifact
from tvm_quant.artifact.network import (
    BRANCH,
    Call,
    Network,
    PlacedQuantizer,
    Port,
    network_of,
    placed_rows,
)
from tvm_quant.artifact.provenance import Provenance, sha256_of
from tvm_quant.artifact.table import QuantizerRow, calibration_table

__all__ = [
    "BRANCH",
    "SUFFIX",
    "Artifact",
    "Call",
    "Network",
    "PlacedQuantizer",
    "Port",
    "Provenance",
    "QuantizerRow",
    "calibration_table",
    "network_of",
    "placed_rows",
    "sha256_of",
]
