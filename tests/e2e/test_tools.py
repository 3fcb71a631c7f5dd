"""Every quantizer that the table names, run for real on a tiny model, from recipe to release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Bench
from tests.tiny_models import write_tiny

RECIPE = """
model: tiny
source: path:{source}
calibration: {{samples: 8, sequence_length: 128}}
variants:
  gptqmodel: {{scheme: gptq, tool: gptqmodel, group_size: 64}}
  autogptq: {{scheme: gptq, tool: autogptq, group_size: 64, actorder: null}}
  autoawq: {{scheme: awq, tool: autoawq, group_size: 64, symmetric: false}}
  modelopt: {{scheme: fp8-static, tool: modelopt, kv_cache: fp8, targets: [h100]}}
  modelopt-awq: {{scheme: awq, tool: modelopt, group_size: 64, n_grid: 4, targets: ["h100:checkpoint"]}}
  nvfp4: {{scheme: nvfp4, targets: ["b200:checkpoint"]}}
targets: [cpu, h100, "h100:checkpoint", "b200:checkpoint"]
evaluation:
  documents: 40
  offline: true
  gate: {{margin: 0.6, expected_flips: 0.01}}
"""
TARGETS = {"gptqmodel": "[h100]", "autogptq": "[h100]", "autoawq": "[h100]"}
Built = tuple[Bench, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def built(new_bench: Callable[[], Bench], tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder / "source", "llama", convention="v5", max_position_embeddings=4096)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(source=folder / "source"))
    bench = new_bench()
    overrides = [part for name, target in TARGETS.items() for part in ("--set", f"variants.{name}.targets={target}")]
    done = bench.run("build", str(recipe), "--json", *overrides)
    rows = {row["line"]: row for row in json.loads(done.stdout)["releases"]}
    assert done.returncode == 0, done.stderr + json.dumps(rows, indent=1)
    return bench, rows


def weights(built: Built, variant: str) -> Path:
    return Path(built[1][variant]["location"].removeprefix("file://")) / "weights"


@pytest.mark.parametrize(
    ("variant", "method"),
    [
        ("gptqmodel", "gptq"), ("autogptq", "gptq"), ("autoawq", "awq"), ("modelopt", "modelopt"),
        ("modelopt-awq", "modelopt"), ("nvfp4", "modelopt"),
    ],
)  # fmt: skip
def test_each_writes_its_format_and_carries_the_rest_over(built: Built, variant: str, method: str) -> None:
    folder = weights(built, variant)
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == method
    assert config["rope_parameters"]["rope_theta"] == 500000.0  # the source's own config, in its own words
    assert "/" not in json.dumps(config["quantization_config"]), "a path of the machine that built it"
    assert (folder / "tokenizer.json").is_file()
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize("variant", ["gptqmodel", "autogptq", "autoawq"])
def test_hugging_face_formats_are_judged_by_transformers(built: Built, variant: str) -> None:
    row = built[1][variant]
    assert row["verdict"] == "PASS"
    assert row["margin"] == 0.6


@pytest.mark.parametrize("variant", ["modelopt", "modelopt-awq", "nvfp4"])
def test_modelopt_s_cannot_be_judged_without_a_server(built: Built, variant: str) -> None:
    row = built[1][variant]
    assert row["verdict"] == "NOT RUN"
    assert "set evaluation.backend: vllm" in row["reason"]


def test_a_cache_type_reaches_the_config(built: Built) -> None:
    quantization = json.loads((weights(built, "modelopt") / "hf_quant_config.json").read_text())["quantization"]
    assert quantization["kv_cache_quant_algo"] == "FP8"


def test_a_checkpoint_target_gets_its_launch_file(built: Built) -> None:
    serve = weights(built, "modelopt-awq").parent / "serve"
    assert "--backend pytorch" in (serve / "trtllm-serve.sh").read_text()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("variants.gptqmodel.tool=autogptq", "actorder: 'static', which AutoGPTQ lacks; wanted null or group"),
        ("variants.autoawq.symmetric=true", "symmetric: true with AutoAWQ; wanted false"),
        ("variants.autoawq.n_grid=10", "n_grid: 10 with AutoAWQ; wanted 20"),
        ("variants.autoawq.tool=autowaq", "Did you mean 'autoawq'?"),
        ("variants.modelopt-awq.targets=[h100]", "vLLM's modelopt formats are fp8, fp8-static, nvfp4"),
        ("variants.autogptq.targets=['h100:checkpoint']", "does not load autogptq's format; wanted tool: modelopt"),
    ],
)
def test_what_a_tool_cannot_do_is_said_before_it_runs(built: Built, tmp_path: Path, setting: str, says: str) -> None:
    bench, _ = built
    source = write_tiny(tmp_path / "source")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(source=source))
    overrides = [part for name, target in TARGETS.items() for part in ("--set", f"variants.{name}.targets={target}")]
    done = bench.run("plan", str(tmp_path / "recipe.yaml"), *overrides, "--set", setting)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr


def test_the_plan_says_why_and_what_to_expect(built: Built, tmp_path: Path) -> None:
    bench, _ = built
    source = write_tiny(tmp_path / "source")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(source=source))
    overrides = [part for name, target in TARGETS.items() for part in ("--set", f"variants.{name}.targets={target}")]
    said = bench.run("plan", str(tmp_path / "recipe.yaml"), *overrides).stdout
    assert "note: autoawq: autoawq, writes AWQ's GEMM format" in said
    assert "AutoAWQ takes minutes a layer without a GPU" in said


def test_every_tool_has_its_worker_and_pins() -> None:
    from recipes.tools import TOOLS

    for tool in TOOLS.values():
        assert (ROOT / "builders" / "workers" / tool.worker).is_file()
        assert (ROOT / "builders" / "toolchains" / f"{tool.toolchain}.txt").is_file()
