"""The .tvmq file."""

import json
import zipfile
from dataclasses import replace

import pytest
import tvm

from small_networks import calibrated_network
from tvm_quant.artifact import Artifact, Provenance, calibration_table, network_of
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ArtifactError

PROVENANCE = Provenance(
    created="2026-01-01T00:00:00+00:00",
    versions={"tvm-quant": "1"},
    command=["tvm-quant", "quantize"],
    source="/m.onnx",
    source_sha256="ab",
    dataset="file d.npz",
    preprocess={"crop": [224, 224]},
)


@pytest.fixture
def artifact():
    mod = calibrated_network()
    return Artifact(
        module=calibrated_network(quantized=False),
        config=QuantizeConfig(activation_estimator="mse", skip=("a.*",)),
        table=calibration_table(mod),
        provenance=PROVENANCE,
        calibrated=mod,
        network=network_of(mod),
    )


def rewrite(path, **members):
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content |= {name.replace("_json", ".json"): text for name, text in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in content.items():
            if text is not None:
                archive.writestr(name, text)


def test_what_is_saved_is_loaded(tmp_path, artifact):
    artifact.save(tmp_path / "m.tvmq")
    loaded = Artifact.load(tmp_path / "m.tvmq")
    tvm.ir.assert_structural_equal(loaded.module, artifact.module)
    tvm.ir.assert_structural_equal(loaded.calibrated, artifact.calibrated)
    assert (loaded.config, loaded.provenance) == (artifact.config, artifact.provenance)
    assert loaded.table == artifact.table
    assert loaded.network == artifact.network


def test_the_calibrated_module_can_be_left_out(tmp_path, artifact):
    replace(artifact, calibrated=None).save(tmp_path / "m.tvmq")
    assert Artifact.load(tmp_path / "m.tvmq").calibrated is None


def test_a_file_of_an_older_version_is_drawn_from_its_calibrated_module(tmp_path, artifact):
    replace(artifact, network=None).save(tmp_path / "m.tvmq")
    loaded = Artifact.load(tmp_path / "m.tvmq")
    assert loaded.network is None
    assert loaded.drawable() == artifact.drawable() == artifact.network


def test_a_slim_file_of_an_older_version_cannot_be_drawn(tmp_path, artifact):
    replace(artifact, network=None, calibrated=None).save(tmp_path / "m.tvmq")
    message = "the file holds scales, but not which call reads which: .* Quantize again"
    with pytest.raises(ArtifactError, match=message):
        Artifact.load(tmp_path / "m.tvmq").drawable()


def test_equal_content_gives_equal_bytes(tmp_path, artifact):
    artifact.save(tmp_path / "a.tvmq")
    Artifact.load(tmp_path / "a.tvmq").save(tmp_path / "b.tvmq")
    assert (tmp_path / "a.tvmq").read_bytes() == (tmp_path / "b.tvmq").read_bytes()


def test_only_the_provenance_names_a_time(tmp_path, artifact):
    artifact.save(tmp_path / "a.tvmq")
    later = replace(artifact, provenance=replace(PROVENANCE, created="2030-01-01T00:00:00+00:00"))
    later.save(tmp_path / "b.tvmq")
    with zipfile.ZipFile(tmp_path / "a.tvmq") as a, zipfile.ZipFile(tmp_path / "b.tvmq") as b:
        different = [name for name in a.namelist() if a.read(name) != b.read(name)]
    assert different == ["provenance.json"]


def test_a_failed_save_leaves_the_old_file(tmp_path, artifact, monkeypatch):
    path = tmp_path / "m.tvmq"
    path.write_bytes(b"old")

    def fail(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(KeyboardInterrupt):
        artifact.save(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.tvmq"]


def test_saving_into_a_missing_folder_is_refused(tmp_path, artifact):
    with pytest.raises(ArtifactError, match=r"cannot write .*m\.tvmq: there is no folder .*none"):
        artifact.save(tmp_path / "none" / "m.tvmq")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"there is no file .*m\.tvmq"):
        Artifact.load(tmp_path / "m.tvmq")


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.999])
def test_a_truncated_file_is_refused(tmp_path, artifact, keep):
    path = tmp_path / "m.tvmq"
    artifact.save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(
        ArtifactError, match=r"m\.tvmq is no \.tvmq file of tvm_quant, or it is damaged"
    ):
        Artifact.load(path)


def test_a_flipped_bit_is_noticed(tmp_path, artifact):
    path = tmp_path / "m.tvmq"
    artifact.save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        Artifact.load(path)


def test_a_foreign_zip_is_refused(tmp_path):
    path = tmp_path / "m.tvmq"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word.xml", "<a/>")
    with pytest.raises(ArtifactError, match=r"m\.tvmq is no \.tvmq file of tvm_quant"):
        Artifact.load(path)


@pytest.mark.parametrize("text", ["[]", "{", '{"format": "other", "version": 1}'])
def test_a_foreign_format_is_refused(tmp_path, artifact, text):
    path = tmp_path / "m.tvmq"
    artifact.save(path)
    rewrite(path, format_json=text)
    with pytest.raises(ArtifactError, match=r"is no \.tvmq file of tvm_quant"):
        Artifact.load(path)


def test_a_file_of_version_1_is_read(tmp_path, artifact):
    path = tmp_path / "m.tvmq"
    artifact.save(path)
    rewrite(
        path,
        format_json=json.dumps({"format": "tvm_quant artifact", "version": 1}),
        **{"packed.bin": None},
    )
    tvm.ir.assert_structural_equal(Artifact.load(path).module, artifact.module)


def test_a_file_from_a_newer_version_is_refused(tmp_path, artifact):
    path = tmp_path / "m.tvmq"
    artifact.save(path)
    rewrite(path, format_json=json.dumps({"format": "tvm_quant artifact", "version": 3}))
    with pytest.raises(ArtifactError, match=r"has format version 3; .* reads up to 2\. Upgrade"):
        Artifact.load(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"module_json": None}, "it lacks 'module.json'"),
        ({"module_json": "{}"}, "is damaged"),
        ({"calibration_json": '[{"nodes": 1}]'}, "calibration table has a row that cannot be read"),
        ({"provenance_json": '{"made": 1}'}, "the provenance cannot be read"),
        ({"calibration_json": "[1"}, "is damaged"),
        ({"network_json": "[1"}, "is damaged"),
        ({"network_json": "[]"}, "the network cannot be read"),
    ],
)
def test_damaged_members_are_refused(tmp_path, artifact, members, message):
    path = tmp_path / "m.tvmq"
    artifact.save(path)
    rewrite(path, **members)
    with pytest.raises(ArtifactError, match=message):
        Artifact.load(path)


def test_provenance_knows_versions_and_the_checksum_of_the_model(tmp_path):
    model = tmp_path / "m.onnx"
    model.write_bytes(b"abc")
    made = Provenance.now(source=model, command=["a"])
    assert made.source == str(model)
    assert made.source_sha256.startswith("ba7816bf8f01cfea")
    assert made.versions["apache-tvm"] == "0.27.0.post1"
    with pytest.raises(ArtifactError, match="cannot read"):
        Provenance.now(source=tmp_path / "none.onnx")
