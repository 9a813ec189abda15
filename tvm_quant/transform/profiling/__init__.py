"""Parts of the Profile pass: the graph it runs, its tasks, and how they are handed out."""

from tvm_quant.transform.profiling.graph import (
    ProfiledTensor,
    fingerprint,
    profiled_tensors,
)
from tvm_quant.transform.profiling.ordered_map import ordered_map
from tvm_quant.transform.profiling.task import Batch, Chunk, Profiled, ProfileTask, chunks
from tvm_quant.transform.profiling.worker import Worker

__all__ = [
    "Batch",
    "Chunk",
    "ProfileTask",
    "Profiled",
    "ProfiledTensor",
    "Worker",
    "chunks",
    "fingerprint",
    "ordered_map",
    "profiled_tensors",
]
