import json
from dataclasses import replace

from tvm_quant.bench.measure import Latency, Result
from tvm_quant.bench.report import Sheet, results_sheet, write_json, write_markdown


def result(**changes):
    fields = {
        "workload": "net",
        "config": "default",
        "metric": "top-1",
        "samples": 10,
        "calibration": 4,
        "float_score": 90.0,
        "int8_score": 89.75,
        "agreement": 99.0,
        "sqnr_db": [30.04, 25.5],
        "float_bytes": 4000,
        "int8_bytes": 1100,
        "profile_s": 1.0,
        "quantize_s": 0.5,
        "compile_s": 2.0,
        "float_ms": Latency(median=2.0, p10=1.9, p90=2.2),
        "int8_ms": None,
        "batch": 1,
    }
    return Result(**(fields | changes))


def test_a_sheet_becomes_markdown_with_its_alignment():
    sheet = Sheet(columns=("<network", "points"), rows=[["a", "1.0"], ["b", "2.5"]])
    assert sheet.markdown() == ("| network | points |\n| --- | ---: |\n| a | 1.0 |\n| b | 2.5 |\n")
    titled = replace(sheet, title="Points")
    assert titled.markdown() == f"## Points\n\n{sheet.markdown()}"


def test_a_result_is_one_line_with_the_worst_output():
    (line,) = results_sheet([result()]).rows
    cells = "net|default|top-1|90.00|89.75|0.25|99.00|25.5|4|1|2.00 (1.90-2.20)||1.5|10"
    assert "|".join(line) == cells


def test_without_a_metric_the_cells_stay_empty():
    bare = result(metric=None, float_score=None, int8_score=None, agreement=None)
    (line,) = results_sheet([bare]).rows
    assert list(line[2:7]) == [""] * 5


def test_files_hold_the_results_and_what_made_them(tmp_path):
    write_json(tmp_path / "r.json", [result().to_dict()])
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["results"][0]["sqnr_db"] == [30.04, 25.5]
    assert {"apache-tvm", "numpy", "cpu"} <= set(record["environment"])
    write_markdown(tmp_path / "r.md", results_sheet([result()]))
    assert (tmp_path / "r.md").read_text().startswith("| network | config |")
