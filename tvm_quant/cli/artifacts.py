"""Writing a `.tvmq` file, for every sub-command that makes integers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tvm import IRModule

from tvm_quant.artifact import Artifact, Provenance, QuantizerRow, calibration_table, network_of
from tvm_quant.cli.guard import stdout
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ArtifactError
from tvm_quant.ir.reasons import float_reasons, with_reasons
from tvm_quant.ir.signature import main_function
from tvm_quant.report import PassTrace, float_table


def check_output(*paths: Path | None) -> None:
    """Find out before an hour of work that its result cannot be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise ArtifactError(f"cannot write {path}: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise ArtifactError(f"cannot write {path}: it is a folder")


def write_artifact(
    output: Path,
    module: IRModule,
    trace: PassTrace,
    config: QuantizeConfig,
    made: Provenance,
    *,
    explain: bool,
    slim: bool,
) -> None:
    """Write what the passes made, and tell how much of it runs on integers."""
    calibrated = _explained(trace.calibrated, module) if trace.calibrated is not None else module
    table = calibration_table(calibrated)
    Artifact(
        module=module,
        config=config,
        table=table,
        provenance=made,
        calibrated=None if slim else calibrated,
        network=network_of(calibrated),
    ).save(output)
    _summarize(output, table, explain)


def _explained(calibrated: IRModule, module: IRModule) -> IRModule:
    """The calibrated module with what only the integers tell: which calls had no rule."""
    reasons = {**float_reasons(main_function(module)), **float_reasons(main_function(calibrated))}
    result = IRModule(dict(calibrated.functions_items()), attrs=calibrated.attrs)
    result["main"] = with_reasons(main_function(calibrated), reasons)
    return result


def _summarize(output: Path, table: Sequence[QuantizerRow], explain: bool) -> None:
    kept = {row.node for row in table if row.reason is not None}
    integer = {row.node for row in table if row.port is not None}
    console = stdout()
    console.print(f"{len(integer)} nodes run on integers, {len(kept)} stay in float")
    if explain and kept:
        console.print(float_table(table))
    elif kept:
        console.print("--explain, or tvm-quant inspect, says why", style="dim")
    console.print(f"wrote {output} ({output.stat().st_size / 1000:.0f} kB)")
