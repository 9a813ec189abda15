"""Every sub-command on the embedded network."""

import importlib
import json
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from PIL import Image
from tvm import relax

from onnx_models import model
from quantized_models import grid, quantizer
from small_networks import calibrated_network
from tvm_quant.artifact import Artifact
from tvm_quant.backend import host_target
from tvm_quant.backend.cpu import isa_of
from tvm_quant.backend.cpu.check import LAYERS, KernelCheck
from tvm_quant.demo import DEMOS
from tvm_quant.statistics import Statistics

demo_command = importlib.import_module("tvm_quant.cli.demo")
doctor_command = importlib.import_module("tvm_quant.cli.doctor")


# quantize -------------------------------------------------------------------


def test_quantize_writes_module_config_table_and_provenance(artifact, small):
    loaded = Artifact.load(artifact)
    assert loaded.config.activation_estimator == "robust"
    assert [row for row in loaded.table if row.scale]
    assert loaded.provenance.source == str(small.model)
    assert "calibration.npz" in loaded.provenance.dataset
    assert "32 samples" in loaded.provenance.dataset
    assert loaded.calibrated is not None


def test_quantize_says_what_it_did_and_why_not(everything):
    output = everything.result.stdout
    assert "nodes run on integers" in output
    assert "stays in float because" in output
    assert "stem.conv" in output
    assert f"wrote {everything.path}" in output.replace("\n", "")


def test_options_and_settings_override_the_config_file(everything):
    chosen = Artifact.load(everything.path).config
    assert (chosen.activation_estimator, chosen.weight_estimator) == ("minmax", "mse")
    assert (chosen.nbit_weight, chosen.nbit_activation) == (7, 7)
    assert chosen.skip == ("stem.conv", "classifier")
    assert (chosen.hardware, chosen.max_samples) == ("generic", 24)
    assert chosen.symmetric_activations is True


def test_statistics_are_kept_and_reused(invoke, small, everything, tmp_path):
    assert Statistics.load(everything.stats).samples == 24
    path = tmp_path / "a.tvmq"
    options = ("--stats", everything.stats, "--data", small.calibration, *everything.options)
    result = invoke("quantize", small.model, "-o", path, *options)
    assert result.exit_code == 0, result.output
    first, second = Artifact.load(everything.path), Artifact.load(path)
    assert first.table == second.table
    tvm.ir.assert_structural_equal(first.module, second.module)


def test_two_workers_give_the_same_bits(invoke, small, everything, tmp_path):
    path = tmp_path / "a.tvmq"
    data = ("--data", small.calibration)
    result = invoke("quantize", small.model, "-o", path, *data, *everything.options, "--workers", 2)
    assert result.exit_code == 0, result.output
    assert Artifact.load(path).table == Artifact.load(everything.path).table


def test_dump_ir_writes_one_file_per_pass(everything):
    names = [path.name for path in sorted(everything.ir.iterdir())]
    assert names[0] == "01_Prepare.py"
    assert names[-1].endswith("_Realize.py")
    assert any(name.endswith("_Annotate.py") for name in names)
    assert "simulated_quantize" in (everything.ir / names[-2]).read_text()


def test_slim_leaves_out_the_float_weights(everything):
    assert Artifact.load(everything.path).calibrated is None


def test_without_data_a_range_can_be_assumed(invoke, small, tmp_path):
    path = tmp_path / "a.tvmq"
    result = invoke("quantize", small.model, "--calibrate", "global_scale", "-o", path)
    assert result.exit_code == 0, result.output
    assert Artifact.load(path).provenance.dataset is None


def test_a_file_that_another_tool_quantized_needs_no_data(invoke, tmp_path):
    source, output = tmp_path / "quantized.onnx", tmp_path / "quantized.tvmq"
    onnx.save(model([quantizer("x")], {"x": (2, 3)}, grid(0.25)), source)
    invoke("quantize", source, "-o", output)
    assert output.is_file()


def test_a_folder_of_images_is_calibration_data(invoke, small, tmp_path):
    for index in range(4):
        pixels = np.random.default_rng(index).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
    spec = tmp_path / "p.yaml"
    spec.write_text("color: gray\nscale: 1/255\n")
    path = tmp_path / "a.tvmq"
    options = ("--data", tmp_path, "--preprocess", spec, "-o", path)
    result = invoke("quantize", small.model, *options)
    assert result.exit_code == 0, result.output
    assert Artifact.load(path).provenance.preprocess["color"] == "GRAY"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "calibrating with 'robust' needs data: give --data"),
        (("--data", "none.npz"), "there is no data file none.npz"),
        (("--data", "none"), "there is no file or folder none"),
        (("--config", "none.yaml"), "Cannot read config 'none.yaml'"),
        (("--set", "nbits=3"), "unknown field"),
        (("--set", "nbit_weight=40"), "nbit_weight is 40; expected 2 to 8"),
        (("--preprocess", "none.yaml"), "cannot read the preprocessing file none.yaml"),
        (("--stats", "none.npz"), "Cannot read statistics 'none.npz'"),
        (("--calibrate", "global_scale", "--shape", "image=1"), "image"),
        (("--calibrate", "global_scale", "--skip", "steam.*"), "pattern 'steam.*' matches no"),
        (("--calibrate", "global_scale", "--save-stats", "none/s.npz"), "there is no folder none"),
    ],
)
def test_quantize_refuses_what_cannot_work(refused, small, tmp_path, options, message):
    refused("quantize", small.model, "-o", tmp_path / "a.tvmq", *options, message=message)
    assert list(tmp_path.iterdir()) == []


def test_quantize_refuses_bad_data_before_any_work(refused, small, tmp_path):
    data = np.load(small.calibration)["image"].copy()
    data[5, 0, 2, 2] = np.nan
    np.savez(tmp_path / "nan.npz", image=data)
    np.savez(tmp_path / "name.npz", picture=data, other=data)
    np.savez(tmp_path / "shape.npz", image=data[:, :, :4])
    np.savez(tmp_path / "zero.npz", image=np.zeros_like(data))
    for name, message in (
        ("nan.npz", "input 'image' has NaN in sample 5"),
        ("name.npz", "has 2 arrays that could be input 'image'"),
        ("shape.npz", "input 'image' has shape (8, 1, 4, 8), but the model takes (?, 1, 8, 8)"),
        ("zero.npz", "input 'image' is zero in all 32 samples"),
    ):
        output = ("-o", tmp_path / "a.tvmq")
        refused("quantize", small.model, "--data", tmp_path / name, *output, message=message)
    assert not (tmp_path / "a.tvmq").exists()


def test_bad_samples_are_left_out_by_option_with_a_warning(invoke, small, tmp_path):
    data = np.load(small.calibration)["image"].copy()
    data[5, 0, 2, 2] = np.inf
    np.savez(tmp_path / "inf.npz", image=data)
    arguments = ("quantize", small.model, "--data", tmp_path / "inf.npz", "--on-bad", "skip")
    result = invoke(*arguments, "-o", tmp_path / "a.tvmq")
    assert result.exit_code == 0, result.output
    assert "warning: left out 1 of 32 samples: input 'image' has Inf in sample 5" in result.stderr


def test_a_model_that_nobody_reads_is_refused(refused, small, tmp_path):
    (tmp_path / "m.txt").write_text("hello")
    (tmp_path / "m.onnx").write_text("hello")
    for name, message in (("m.txt", "Cannot read"), ("m.onnx", "m.onnx")):
        options = ("--data", small.calibration, "-o", tmp_path / "a.tvmq")
        refused("quantize", tmp_path / name, *options, message=message)


def test_an_older_result_survives_a_failure(refused, small, tmp_path):
    path = tmp_path / "a.tvmq"
    path.write_bytes(b"old")
    options = ("--data", "none.npz", "-o", path)
    refused("quantize", small.model, *options, message="there is no data file")
    assert path.read_bytes() == b"old"
    refused("quantize", small.model, "-o", tmp_path, message="it is a folder")


# compile --------------------------------------------------------------------


def test_compile_writes_a_library_that_the_runtime_loads(invoke, artifact, small, tmp_path):
    path = tmp_path / "small.so"
    result = invoke("compile", artifact, "-o", path)
    assert result.exit_code == 0, result.output
    assert "wrote" in result.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["small.so"]
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    images = np.load(small.evaluation)["image"]
    scores = machine["main"](tvm.runtime.tensor(images)).numpy()
    np.testing.assert_allclose(scores, small.scores, atol=0.05)


@pytest.mark.parametrize(("cpu", "told"), [("haswell", True), ("cascadelake", False)])
def test_compile_names_the_hardware_row_of_the_target(invoke, artifact, tmp_path, cpu, told):
    target = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu}
    result = invoke("compile", artifact, "-o", tmp_path / "m.so", "--target", json.dumps(target))
    assert result.exit_code == 0, result.output
    hint = "quantized for x86_vnni; for this target there is tvm-quant quantize --hardware x86_avx2"
    assert (hint in result.stdout) == told


def test_compile_can_measure_its_kernels(invoke, artifact, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_QUANT_CACHE", str(tmp_path))
    result = invoke("compile", artifact, "-o", tmp_path / "m.so", "--tune")
    assert result.exit_code == 0
    assert (tmp_path / "tiles.json").exists()


def test_compile_refuses_what_cannot_work(refused, artifact, tmp_path):
    out = tmp_path / "a.so"
    refused("compile", tmp_path / "none.tvmq", "-o", out, message="there is no file")
    refused("compile", artifact, "-o", tmp_path / "no" / "a.so", message="there is no folder")
    refused("compile", artifact, "-o", out, "--target", "abacus", message="abacus")
    assert list(tmp_path.iterdir()) == []


# run ------------------------------------------------------------------------


def test_run_writes_the_outputs(invoke, artifact, small, tmp_path):
    path = tmp_path / "scores.npz"
    result = invoke("run", artifact, "--data", small.evaluation, "-o", path)
    assert result.exit_code == 0, result.output
    scores = np.load(path)["output0"]
    np.testing.assert_allclose(scores, small.scores, atol=0.05)


def test_run_prints_the_best_scores(invoke, artifact, small):
    result = invoke("run", artifact, "--data", small.evaluation, "--limit", 3)
    assert result.exit_code == 0, result.output
    lines = result.stdout.strip().splitlines()
    assert [line.split()[:2] for line in lines] == [["sample", str(i)] for i in range(3)]
    best = [int(line.split()[2].rstrip(":")) for line in lines]
    assert best == small.scores[:3].argmax(1).tolist()


def test_run_refuses_what_cannot_work(refused, artifact, small, tmp_path):
    (tmp_path / "foreign.tvmq").write_text("hello")
    data = ("--data", small.evaluation)
    refused("run", tmp_path / "foreign.tvmq", *data, message="is no .tvmq file of tvm_quant")
    refused("run", artifact, "--data", "none.npz", message="there is no data file none.npz")
    out = tmp_path / "no" / "o.npz"
    refused("run", artifact, *data, "-o", out, message="there is no folder")


# evaluate -------------------------------------------------------------------


def test_evaluate_compares_with_the_float_model(invoke, artifact, small, tmp_path):
    numbers, picture = tmp_path / "e.json", tmp_path / "l.png"
    more = ("--layers", 8, "--json", numbers, "--plot", picture)
    result = invoke("evaluate", artifact, "--data", small.evaluation, *more)
    assert result.exit_code == 0, result.output
    for text in ("top-1", "same answer", "SQNR of output 0", "stem.conv"):
        assert text in result.stdout
    found = json.loads(numbers.read_text())
    assert found["samples"] == 24
    assert found["top1_float"] == 1
    assert found["top1_int8"] > 0.8
    assert found["output_sqnr_db"][0] > 20
    assert all(layer["sqnr_db"] > 10 for layer in found["layers"])
    assert picture.stat().st_size > 1000


def test_evaluate_finds_a_model_that_has_moved(invoke, refused, artifact, small, tmp_path):
    loaded = Artifact.load(artifact)
    gone = replace(loaded.provenance, source=str(tmp_path / "gone.onnx"))
    replace(loaded, provenance=gone).save(tmp_path / "a.tvmq")
    arguments = ("evaluate", tmp_path / "a.tvmq", "--data", small.evaluation)
    refused(*arguments, message="gone.onnx is not there; say where it is with --model")
    shutil.copy(small.model, tmp_path / "here.onnx")
    assert invoke(*arguments, "--model", tmp_path / "here.onnx").exit_code == 0
    changed = replace(loaded.provenance, source=str(tmp_path / "here.onnx"), source_sha256="0")
    replace(loaded, provenance=changed).save(tmp_path / "a.tvmq")
    refused(*arguments, message="here.onnx has changed since it was quantized")


def test_evaluate_refuses_layers_of_a_slim_artifact(refused, artifact, small, tmp_path):
    replace(Artifact.load(artifact), calibrated=None).save(tmp_path / "a.tvmq")
    arguments = ("evaluate", tmp_path / "a.tvmq", "--data", small.evaluation, "--layers", 4)
    refused(*arguments, message="was written with --slim and cannot show layers")


# inspect --------------------------------------------------------------------


def test_inspect_shows_origin_and_quantizers(invoke, artifact, small):
    result = invoke("inspect", artifact)
    assert result.exit_code == 0, result.output
    for text in (str(small.model), "apache-tvm 0.27.0.post1", "Quantizers", "stem.conv", "u8"):
        assert text in result.stdout


def test_inspect_selects_nodes_and_prints_json(invoke, refused, artifact):
    result = invoke("inspect", artifact, "--json", "--node", "relax.nn.conv2d")
    rows = json.loads(result.stdout)
    assert {row["op"] for row in rows} == {"relax.nn.conv2d"}
    refused("inspect", artifact, "--node", "steam", message="pattern 'steam' matches no node")


def test_inspect_prints_quantizers_as_text(invoke, everything, refused, tmp_path):
    result = invoke("inspect", everything.path, "--text")
    assert result.stdout == (
        "body.conv:0 conv2d 7SNsn activation <- stem.relu\n"
        "body.conv:1 conv2d 7SCsn weight <- constant, axis 0\n"
    )
    lines = invoke("inspect", everything.path, "--text", "--scales").stdout.splitlines()
    assert re.fullmatch(
        r"body\.conv:0 conv2d 7SNsn activation <- stem\.relu, scale [\d.e-]+, zero 0", lines[0]
    )
    old = tmp_path / "old.tvmq"
    replace(Artifact.load(everything.path), network=None).save(old)
    refused("inspect", old, "--text", message="the file holds scales, but not which call reads")


def test_inspect_draws_the_network(invoke, everything, tmp_path):
    page = tmp_path / "small.html"
    result = invoke("inspect", everything.path, "--graph", page)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {page} ({page.stat().st_size / 1000:.0f} kB)\n"
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    for part in ('data-pill="body.conv:0"', "left in float by skip pattern", "7SCsn", "small.onnx"):
        assert part in text
    assert " dB</text>" not in text


def test_inspect_measures_layers_for_the_drawing(invoke, refused, artifact, small, tmp_path):
    page = tmp_path / "small.html"
    options = ("--graph", page, "--data", small.evaluation, "--limit", 8)
    result = invoke("inspect", artifact, *options)
    assert result.exit_code == 0, result.output
    assert len(re.findall(r"\d\d\.\d dB</text>", page.read_text())) == 3
    replace(Artifact.load(artifact), calibrated=None).save(tmp_path / "slim.tvmq")
    message = "was written with --slim and cannot show layers"
    refused("inspect", tmp_path / "slim.tvmq", *options, message=message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "d.npz"), "--data measures layers for --graph; give --graph, or leave it out"),
        (("--scales",), "--scales adds to --text; give --text, or leave it out"),
        (("--text", "--json"), "--json and --text are different outputs; give one of them"),
        (("--text", "--node", "a"), "--node selects rows of the table; --text has the whole"),
        (("--graph", "a.png"), "--graph writes a web page; name it a.html"),
    ],
)
def test_inspect_refuses_options_that_do_not_go_together(refused, artifact, options, message):
    refused("inspect", artifact, *options, message=message)


def test_inspect_refuses_a_file_from_a_newer_version(refused, artifact, tmp_path):
    path = tmp_path / "new.tvmq"
    with zipfile.ZipFile(artifact) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            header = b'{"format": "tvm_quant artifact", "version": 9}'
            new.writestr(name, header if name == "format.json" else old.read(name))
    refused("inspect", path, message="has format version 9; this tvm_quant reads up to 2")


# demo -----------------------------------------------------------------------


def test_demo_passes_its_options_on(invoke, monkeypatch):
    calls = []
    monkeypatch.setattr(demo_command, "run_demo", lambda *args, **more: calls.append((args, more)))
    assert invoke("demo").exit_code == 0
    assert invoke("demo", "--model", "efficientnet-lite0", "--data", "photos").exit_code == 0
    assert [args[1] for args, _ in calls] == ["digits", "efficientnet-lite0"]
    assert calls[1][1] == {"data": Path("photos"), "target": "llvm"}


def test_demo_needs_images_for_imagenet(refused, monkeypatch):
    row = replace(
        DEMOS["efficientnet-lite0"], load=lambda: (calibrated_network(quantized=False), {})
    )
    monkeypatch.setitem(DEMOS, "efficientnet-lite0", row)
    refused("demo", "--model", "efficientnet-lite0", message="--data")


# doctor ---------------------------------------------------------------------


def test_doctor_shows_the_machine_and_checks_the_kernels(invoke):
    result = invoke("doctor")
    assert result.exit_code == 0, result.output
    assert f"{isa_of(host_target()).name}: used" in result.stdout
    assert "apache-tvm-ffi==0.1.14.post0: met" in " ".join(result.stdout.split())
    assert "All kernels equal NumPy." in result.stdout


def test_doctor_fails_where_a_kernel_does(invoke, monkeypatch):
    check = KernelCheck(layer=LAYERS[0], instruction="i", differing=3, elements=9, gops=1.0)
    monkeypatch.setattr(doctor_command, "check_kernels", lambda: iter([check]))
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "no: 3 of 9" in result.stdout
    assert "error: 3x3 of uint8: wrong results on this CPU." in result.stderr
