"""The engine line from recipe to release, with doubles where NVIDIA's programs can't be had."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tensorrt_llm import install
from tests.e2e.conftest import DEMO, Bench, sets

LINE = "fp8-static.h100-engine"
ENGINE_ONLY = (
    *(f"variants.{name}=null" for name in ("fp8", "int8", "gptq", "awq")),
    "variants.fp8-static={scheme: fp8-static}", "targets=['h100:engine']", "calibration.samples=4",
    "calibration.sequence_length=128", "evaluation.documents=60", "evaluation.gate.expected_flips=0.01",
    "evaluation.gate.margin=0.5", "engine.options.max_seq_len=2048",
)  # fmt: skip
Built = tuple[Bench, dict[str, Any], dict[str, str]]


def build(bench: Bench, environment: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return bench.run("build", str(DEMO), "--json", *sets(*ENGINE_ONLY, *more))


@pytest.fixture(scope="module")
def built(new_bench: Callable[[], Bench], tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The demo as an engine for an H100, on a machine without trtllm-serve."""
    bench = new_bench()
    environment = install(tmp_path_factory.mktemp("nvidia") / "bin")
    done = build(bench, environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return bench, json.loads(done.stdout)["releases"][0], environment


def release(built: Built) -> Path:
    return Path(built[1]["location"].removeprefix("file://"))


def test_an_engine_is_released_with_all_that_serves_it(built: Built) -> None:
    _, row, _ = built
    assert row["line"] == LINE
    assert row["verdict"] == "NOT RUN"
    assert "trtllm-serve is not on this machine" in row["reason"]
    files = {path.relative_to(release(built)).as_posix() for path in release(built).rglob("*") if path.is_file()}
    assert {
        "engine/config.json", "engine/rank0.engine", "hardware.json", "tokenizer/tokenizer.json", "serve/triton.sh",
        "serve/trtllm-serve.sh", "serve/trtllm-serve.yaml", "triton/ensemble/config.pbtxt",
        "triton/preprocessing/1/model.py", "triton/postprocessing/1/model.py", "triton/tensorrt_llm_bls/1/model.py",
        "triton/tensorrt_llm/config.pbtxt", "evaluation/verdict.json", "evaluation/integrity.json", "README.md",
    } <= files  # fmt: skip


def test_what_it_was_built_on_is_written_down(built: Built) -> None:
    manifest = json.loads((release(built) / "manifest.json").read_text())
    assert manifest["engine"] == {
        "gpu": "NVIDIA H100 80GB HBM3", "sm": 90, "driver": "580.65.06", "tensorrt_llm": "1.2.1",
        "tensorrt": "10.14.1.48", "image": None, "ranks": 1,
    }  # fmt: skip
    assert manifest["verdict"]["outcome"] == "NOT RUN"
    command = json.loads((release(built) / "hardware.json").read_text())["command"]
    assert command[:4] == ["--checkpoint_dir", "{checkpoint}", "--output_dir", "{output}/engine"]


def test_the_same_again_runs_nothing(built: Built) -> None:
    bench, row, environment = built
    done = build(bench, environment)
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)
    assert again["stages"]["ran"] == 0
    assert again["releases"][0]["release_id"] == row["release_id"]


def test_the_timing_cache_is_kept_and_used(built: Built) -> None:
    bench, _, environment = built
    (cache,) = (bench.home / "timing-cache").glob("*.cache")
    assert cache.name == "NVIDIA-H100-80GB-HBM3-trt10.14.1.48.cache"
    before = cache.read_text()
    done = build(bench, environment, "engine.options.max_batch_size=8")
    assert done.returncode == 0, done.stderr
    assert cache.read_text() == before + "timed\n"


def test_pull_refuses_another_gpu_and_another_release(built: Built, tmp_path: Path) -> None:
    bench, row, _ = built
    for place, machine, says in (
        ("a", {"gpu": "NVIDIA A100-SXM4-80GB, 8.0"}, "built on NVIDIA H100 80GB HBM3 (SM 90)"),
        ("b", {"version": "1.1.0"}, "built by TensorRT-LLM 1.2.1; this machine has 1.1.0"),
        ("c", {"tensorrt": "10.13.0"}, "serialized by TensorRT 10.14.1.48; this machine has 10.13.0"),
    ):
        environment = install(tmp_path / place / "bin", **machine)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            done = bench.run("pull", row["release_id"], str(tmp_path / place / "out"))
            assert done.returncode == 2
            assert says in done.stderr
            forced = bench.run("pull", row["release_id"], str(tmp_path / place / "out"), "--force")
            assert forced.returncode == 0, forced.stderr


def test_doctor_says_what_a_target_lacks(built: Built, tmp_path: Path) -> None:
    bench, _, environment = built
    done = bench.run("doctor", "--target", "h100:engine")
    assert done.returncode == 1
    assert "nvidia-smi shows none; wanted 1 of SM 90" in done.stdout
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert "trtllm-serve" in bench.run("doctor", "--target", "h100:engine").stdout
        wrong = bench.run("doctor", "--target", "a100x2:engine").stdout
    assert "wanted SM 80" in wrong
    assert "1; wanted 2" in wrong


def test_without_the_tool_the_command_is_named(new_bench: Callable[[], Bench], built: Built) -> None:
    """Nothing is published, nothing is lost, and the same build goes on where the tool is."""
    bench, _, _ = built
    done = bench.run("build", str(DEMO), "--json", *sets(*ENGINE_ONLY, "engine.options.max_batch_size=4"))
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)["releases"]
    assert row["verdict"] == "FAILED"
    assert "TensorRT-LLM is not on this machine" in row["reason"]


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("[TRT] [E] 2: CUDA out of memory", "the GPU ran out of memory while building"),
        ("[E] Could not find any implementation for node {ForeignNode[x]}.", "TensorRT found no kernel for"),
        (
            "Traceback (most recent call last):\nValueError: Unsupported architecture Foo",
            "does not build this architec",
        ),
        ("[TensorRT-LLM] [E] something else went wrong", "something else went wrong"),
    ],
)
def test_a_failed_build_says_why(built: Built, tmp_path: Path, log: str, says: str) -> None:
    bench, _, environment = built
    (tmp_path / "log").write_text(f"[TRT] [I] fine\n{log}\n[TRT] [I] bye\n")
    done = build(bench, {**environment, "DOUBLE_FAILS": str(tmp_path / "log")}, "engine.options.max_batch_size=2")
    assert done.returncode == 1
    assert says in json.loads(done.stdout)["releases"][0]["reason"]


def test_three_ranks(built: Built, tmp_path: Path) -> None:
    bench, _, _ = built
    done = build(bench, install(tmp_path / "bin", gpus=3), "targets=['h100x3:engine']")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["releases"]
    folder = Path(row["location"].removeprefix("file://"))
    assert {path.name for path in (folder / "engine").glob("rank*")} == {f"rank{n}.engine" for n in range(3)}
    assert json.loads((folder / "manifest.json").read_text())["engine"]["ranks"] == 3
    assert "mpirun" in (folder / "serve" / "triton.sh").read_text()
    assert "--tp_size 3" in (folder / "serve" / "trtllm-serve.sh").read_text()
    assert "--workers 3" in " ".join(json.loads((folder / "hardware.json").read_text())["command"])


def test_the_release_s_own_converter(built: Built, tmp_path: Path) -> None:
    """Route B: its script is run under TensorRT-LLM's interpreter, and what it wrote is checked like any other."""
    bench, _, environment = built
    script = tmp_path / "source" / "examples" / "quantization" / "quantize.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys\nprint('quantizing', sys.argv[1])\nsys.exit('no calibration data to be had')\n")
    environment = {**environment, "ENGINEWORKS_TENSORRT_LLM_FOLDER": str(tmp_path / "source")}
    done = build(bench, environment, "engine.route=converter")
    assert "quantize.py: no calibration data to be had" in done.stdout
    converted = next(
        path
        for path in (bench.home / "store" / "artifacts").rglob("config.json")
        if json.loads(path.read_text()).get("mapping", {}).get("world_size") == 1
    )
    lines = f"import shutil, sys\nshutil.copytree({str(converted.parent)!r}, sys.argv[4], dirs_exist_ok=True)\n"
    script.write_text(lines)
    done = build(bench, environment, "engine.route=converter")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["releases"]
    assert row["verdict"] == "NOT RUN"
    del environment["ENGINEWORKS_TENSORRT_LLM_FOLDER"]
    missing = build(bench, environment, "engine.route=converter", "engine.dtype=float16")
    assert "no /app/tensorrt_llm/examples/quantization/quantize.py" in missing.stdout


def test_another_gpu_builds_nothing(built: Built, tmp_path: Path) -> None:
    bench, _, _ = built
    environment = install(tmp_path / "bin", gpu="NVIDIA A100-SXM4-80GB, 8.0")
    done = build(bench, environment, "engine.options.max_batch_size=3")
    assert "the target is SM 90 and this machine has NVIDIA A100-SXM4-80GB (SM 80)" in done.stdout
    environment = install(tmp_path / "bin2", version="1.0.0")
    done = build(bench, environment, "engine.options.max_batch_size=3")
    assert "the target card says TensorRT-LLM 1.2.1 and 1.0.0 is installed" in done.stdout


def test_an_engine_is_judged_through_its_server(built: Built, tmp_path: Path) -> None:
    """With trtllm-serve there, the documents are answered by it: here by a double that serves the original itself."""
    bench, _, _ = built
    (python,) = (bench.home / "envs").glob("llmcompressor-*/bin/python")
    checkpoint = next(
        path.parent
        for path in (bench.home / "store").rglob("model.safetensors")
        if (path.parent / "config.json").is_file()
    )
    environment = install(tmp_path / "bin", serve_python=python) | {"DOUBLE_CHECKPOINT": str(checkpoint)}
    done = build(bench, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["releases"]
    assert row["verdict"] == "PASS"
    assert abs(row["drop"]) < 0.05
    results = json.loads((Path(row["location"].removeprefix("file://")) / "evaluation" / "results.json").read_text())
    assert results["compute"] == {"server": "trtllm-serve"}
    measured = json.loads((Path(row["location"].removeprefix("file://")) / "evaluation" / "benchmark.json").read_text())
    assert (measured["completed"], measured["failed"]) == (64, 0)
    assert measured["output_tokens_per_s"] > 0
    assert measured["ttft_ms"]["p50"] <= measured["e2e_ms"]["p50"] <= measured["e2e_ms"]["p99"]


def test_a_server_that_scores_no_prompts_is_found_out(built: Built, tmp_path: Path) -> None:
    bench, _, _ = built
    (python,) = (bench.home / "envs").glob("llmcompressor-*/bin/python")
    checkpoint = next(
        path.parent
        for path in (bench.home / "store").rglob("model.safetensors")
        if (path.parent / "config.json").is_file()
    )
    environment = install(tmp_path / "bin", serve_python=python)
    environment |= {"DOUBLE_CHECKPOINT": str(checkpoint), "DOUBLE_MUTE": "1"}
    done = build(bench, environment, "engine.options.max_batch_size=5")
    assert done.returncode == 1
    assert "trtllm-serve gives no log-probabilities of the prompt" in done.stdout


@pytest.mark.tensorrt_llm
@pytest.mark.skipif(
    "ENGINEWORKS_REAL_TARGET" not in os.environ,
    reason="needs a GPU host with TensorRT-LLM: set ENGINEWORKS_REAL_TARGET=h100:engine there (docs/tensorrt-llm.md)",
)
def test_the_real_thing(new_bench: Callable[[], Bench]) -> None:
    """The same line with the real programs, on whatever target this host is."""
    bench = new_bench()
    target = os.environ["ENGINEWORKS_REAL_TARGET"]
    assert bench.run("doctor", "--target", target).returncode == 0
    done = bench.run("build", str(DEMO), "--json", *sets(*ENGINE_ONLY, f"targets=['{target}']"))
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["releases"]
    assert row["verdict"] in ("PASS", "NOT RUN")
