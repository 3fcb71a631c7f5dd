"""Launch files: they parse, find the release wherever it lies, and give the server what the recipe says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from builders.serving.scripts import triton_script, trtllm_options, trtllm_serve_script, vllm_script
from recipes.serving import DraftModel, NGram, Serving

FULL = Serving(
    max_model_len=4096, max_batch_size=32, gpu_memory_utilization=0.8, prefix_caching=False, kv_cache_dtype="fp8",
    speculative=DraftModel(model="org/a draft", num_speculative_tokens=5),
)  # fmt: skip


@pytest.fixture
def called(tmp_path: Path) -> Any:
    """Run a script from another folder, in a release whose path has a space; what its program was given."""
    release, programs = tmp_path / "a release", tmp_path / "bin"
    (release / "serve").mkdir(parents=True)
    programs.mkdir()
    for name in ("vllm", "trtllm-serve", "tritonserver", "mpirun"):
        path = programs / name
        path.write_text('#!/bin/sh\necho "$PWD"\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
        path.chmod(0o755)

    def call(script: str, *more: str) -> list[str]:
        path = release / "serve" / "script.sh"
        path.write_text(script)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", str(path), *more], capture_output=True, text=True, cwd="/", env=environment)
        assert done.returncode == 0, done.stderr
        place, *words = done.stdout.splitlines()
        assert place == str(release)
        return words

    return call


def test_vllm(called: Any) -> None:
    words = called(vllm_script("a-model", Serving(), tensor_parallel=1, pipeline_parallel=1), "--port", "9 9")
    assert words == [
        "serve", "weights", "--served-model-name", "a-model", "--gpu-memory-utilization", "0.9",
        "--enable-prefix-caching", "--port", "9 9",
    ]  # fmt: skip


def test_vllm_with_everything(called: Any) -> None:
    words = called(vllm_script("m", FULL, tensor_parallel=2, pipeline_parallel=1))
    given = dict(zip(words, [*words[1:], ""], strict=True))
    assert given["--max-model-len"] == "4096"
    assert given["--max-num-seqs"] == "32"
    assert given["--kv-cache-dtype"] == "fp8"
    assert given["--tensor-parallel-size"] == "2"
    assert "--no-enable-prefix-caching" in words
    assert "--pipeline-parallel-size" not in words
    assert json.loads(given["--speculative-config"]) == {
        "method": "draft_model", "model": "org/a draft", "num_speculative_tokens": 5,
    }  # fmt: skip
    ngram = Serving(speculative=NGram(num_speculative_tokens=3))
    words = called(vllm_script("m", ngram, tensor_parallel=1, pipeline_parallel=1))
    assert json.loads(words[-1])["method"] == "ngram"


def test_trtllm_serve_on_an_engine(called: Any) -> None:
    limits = {"max_batch_size": 16, "max_seq_len": 2048, "max_num_tokens": 8192}
    words = called(
        trtllm_serve_script(
            FULL, backend="tensorrt", version="1.2.1", tensor_parallel=2, pipeline_parallel=1, limits=limits
        )
    )
    given = dict(zip(words, [*words[1:], ""], strict=True))
    assert words[:3] == ["engine", "--tokenizer", "tokenizer"]
    assert given["--backend"] == "tensorrt"
    assert given["--tp_size"] == "2"
    assert given["--max_batch_size"] == "16"  # what it was built for, not the 32 of the recipe
    assert given["--max_seq_len"] == "2048"
    assert given["--extra_llm_api_options"] == "serve/trtllm-serve.yaml"


@pytest.mark.parametrize(("version", "backend"), [("0.17.0", None), ("1.0.0", "trt"), ("1.2.1", "tensorrt")])
def test_each_release_has_its_own_word_for_the_engine_backend(called: Any, version: str, backend: str | None) -> None:
    script = trtllm_serve_script(Serving(), backend="tensorrt", version=version, tensor_parallel=1, pipeline_parallel=1)
    words = called(script)
    assert ("--backend" in words) is (backend is not None)
    assert backend is None or words[words.index("--backend") + 1] == backend


def test_options_for_the_pytorch_backend() -> None:
    options = YAML(typ="safe").load(trtllm_options(FULL, backend="pytorch"))
    assert options == {
        "kv_cache_config": {"enable_block_reuse": False, "free_gpu_memory_fraction": 0.8, "dtype": "fp8"},
        "speculative_config": {
            "decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model_dir": "org/a draft",
        },
    }  # fmt: skip
    engine = YAML(typ="safe").load(trtllm_options(FULL, backend="tensorrt", attention_window=4096))
    assert engine == {
        "kv_cache_config": {
            "enable_block_reuse": False, "free_gpu_memory_fraction": 0.8, "max_attention_window": [4096],
        }
    }  # fmt: skip


def test_options_for_drafting_from_the_prompt() -> None:
    serving = Serving(speculative=NGram(num_speculative_tokens=3, prompt_lookup_max=5))
    options = YAML(typ="safe").load(trtllm_options(serving, backend="pytorch"))
    assert options["speculative_config"] == {
        "decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 5,
    }  # fmt: skip
    with pytest.raises(ValidationError, match="prompt_lookup_min"):
        NGram(prompt_lookup_min=5, prompt_lookup_max=4)


def test_triton_alone_and_over_ranks(called: Any) -> None:
    assert called(triton_script(1)) == ["--model-repository=triton", "--disable-auto-complete-config"]
    words = called(triton_script(2), "--log-verbose", "a b")
    assert words.count("tritonserver") == 2
    assert words.count(":") == 1
    assert words[:4] == ["--allow-run-as-root", "-n", "1", "tritonserver"]
    first, second = words[: words.index(":")], words[words.index(":") :]
    assert first[-2:] == ["--log-verbose", "a b"]  # to the rank that serves
    assert "--model-control-mode=explicit" in second
    assert "--model-control-mode=explicit" not in first
    assert "--load-model=tensorrt_llm" in second
    assert "--backend-config=python,shm-region-prefix-name=rank1_" in second
