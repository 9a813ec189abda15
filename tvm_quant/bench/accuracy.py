"""`accuracy`: float against int8 on every network."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT, TABLE
from tvm_quant.bench.measure import Result, Scale, Subject
from tvm_quant.bench.report import results_sheet, save, stdout
from tvm_quant.lists import listed


def accuracy(
    only: options.Only = None,
    configs: options.Configs = DEFAULT,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    rounds: options.Rounds = 20,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare each network in int8 with itself in float: accuracy, noise, size, latency."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=rounds)
    _run(only, listed("--configs", configs, str), scale, json, markdown)


def table(
    only: options.Only = None,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare estimators, bias corrections, and scales per channel and per tensor."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)
    _run(only, TABLE, scale, json, markdown)


def _run(
    only: options.Only,
    configs: Sequence[str],
    scale: Scale,
    json: options.Json,
    markdown: options.Markdown,
) -> None:
    done: list[Result] = []

    def measure(subject: Subject) -> list[Result]:
        results = []
        for name in configs:
            results.append(subject.measure(name))
            _save([*done, *results], json, markdown)
        done.extend(results)
        return results

    stdout().print(results_sheet(options.for_each(only, scale, measure)).rich())


def _save(results: Sequence[Result], json: options.Json, markdown: options.Markdown) -> None:
    """Keep what is known so far: a long run may be cut short."""
    save([result.to_dict() for result in results], json, markdown, results_sheet(results))
