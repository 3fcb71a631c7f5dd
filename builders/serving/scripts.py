"""Launch files: one shell script a server, carrying the recipe's serving options; further options are passed on.

Options are those of ``vllm serve`` (docs, cli/serve) and ``trtllm-serve`` (docs, commands/trtllm-serve); the options
file has the fields of TensorRT-LLM's LLM API (docs, llm-api/reference: KvCacheConfig, NGramDecodingConfig,
DraftTargetDecodingConfig). Scripts find the release by their own place, so they work wherever it was pulled to.
"""

from __future__ import annotations

import io
import json
import shlex
from typing import Any, Literal

from ruamel.yaml import YAML

from builders.trtllm.options import parse_version
from recipes.serving import DraftModel, NGram, Serving

OPTIONS_FILE = "trtllm-serve.yaml"
FIRST_NAMED_TENSORRT = (1, 1)
"""From here on the engine backend is called ``tensorrt``; 1.0 calls it ``trt``, older ones have no name for it."""


def vllm_script(served_name: str, serving: Serving, *, tensor_parallel: int, pipeline_parallel: int) -> str:
    words = ["--served-model-name", served_name, "--gpu-memory-utilization", f"{serving.gpu_memory_utilization:g}"]
    words.append("--enable-prefix-caching" if serving.prefix_caching else "--no-enable-prefix-caching")
    if serving.max_model_len:
        words += ["--max-model-len", str(serving.max_model_len)]
    if serving.max_batch_size:
        words += ["--max-num-seqs", str(serving.max_batch_size)]
    if serving.kv_cache_dtype != "auto":
        words += ["--kv-cache-dtype", serving.kv_cache_dtype]
    words += _ranks("--tensor-parallel-size", tensor_parallel) + _ranks("--pipeline-parallel-size", pipeline_parallel)
    match serving.speculative:
        case NGram() as ngram:
            words += ["--speculative-config", json.dumps(ngram.model_dump())]
        case DraftModel() as draft:
            words += ["--speculative-config", json.dumps(draft.model_dump())]
        case None:
            pass
    return _script("vllm serve weights", words)


def llama_script(file: str, serving: Serving) -> str:
    """llama.cpp's own server (``llama-server``), on a GGUF file of the release."""
    words = ["--ctx-size", str(serving.max_model_len)] if serving.max_model_len else []
    if serving.max_batch_size:
        words += ["--parallel", str(serving.max_batch_size)]
    return _script(shlex.join(["llama-server", "--model", f"weights/{file}"]), words)


def mlc_script(model: str, quantization: str) -> str:
    """MLC-LLM's three steps (docs, compilation/convert_weights and compile_models), for a machine that has it."""
    words = ["--quantization", quantization, "-o"]
    lines = (
        ["mlc_llm", "convert_weight", "weights", *words, "mlc"],
        ["mlc_llm", "gen_config", "weights", "--conv-template", "LM", *words, "mlc"],
        ["mlc_llm", "compile", "mlc/mlc-chat-config.json", "--device", "auto", "-o", f"mlc/{model}.so"],
    )
    head = "#!/bin/sh\n# Not run by Engineworks: MLC-LLM is not on PyPI. Choose your model's own chat template.\n"
    return head + 'set -e\ncd "$(dirname "$0")/.."\n' + "\n".join(map(shlex.join, lines)) + "\n"


def trtllm_serve_script(
    serving: Serving,
    *,
    backend: Literal["tensorrt", "pytorch"],
    version: str,
    tensor_parallel: int,
    pipeline_parallel: int,
    limits: dict[str, int] | None = None,
) -> str:
    """``limits``: what an engine was built for (max_batch_size, max_num_tokens, max_seq_len)."""
    served = ["engine", "--tokenizer", "tokenizer"] if backend == "tensorrt" else ["weights"]
    words = backend_option(backend, version)
    words += ["--tp_size", str(tensor_parallel), "--pp_size", str(pipeline_parallel)]
    given = dict(limits or {})
    if serving.max_model_len:
        given["max_seq_len"] = min(serving.max_model_len, given.get("max_seq_len", serving.max_model_len))
    if serving.max_batch_size:
        given["max_batch_size"] = min(serving.max_batch_size, given.get("max_batch_size", serving.max_batch_size))
    for name, value in sorted(given.items()):
        words += [f"--{name}", str(value)]
    words += ["--kv_cache_free_gpu_memory_fraction", f"{serving.gpu_memory_utilization:g}"]
    words += ["--extra_llm_api_options", f"serve/{OPTIONS_FILE}"]
    return _script(shlex.join(["trtllm-serve", *served]), words)


def backend_option(backend: Literal["tensorrt", "pytorch"], version: str) -> list[str]:
    """How that release of trtllm-serve is told which backend to use."""
    if backend == "pytorch":
        return ["--backend", "pytorch"]
    release = parse_version(version)
    if release < (1, 0):
        return []
    return ["--backend", "tensorrt" if release[:2] >= FIRST_NAMED_TENSORRT else "trt"]


def trtllm_options(
    serving: Serving, *, backend: Literal["tensorrt", "pytorch"], attention_window: int | None = None
) -> str:
    """The file for ``--extra_llm_api_options``. ``attention_window``: tokens that attention looks back, which an engine
    of a model with a sliding window must be told."""
    cache: dict[str, Any] = {
        "enable_block_reuse": serving.prefix_caching,
        "free_gpu_memory_fraction": serving.gpu_memory_utilization,
    }
    if attention_window:
        cache["max_attention_window"] = [attention_window]
    options: dict[str, Any] = {"kv_cache_config": cache}
    if backend == "pytorch":  # an engine's cache type and drafting were settled when it was built
        cache["dtype"] = serving.kv_cache_dtype
        match serving.speculative:
            case NGram() as ngram:
                options["speculative_config"] = {
                    "decoding_type": "NGram",
                    "max_draft_len": ngram.num_speculative_tokens,
                    "max_matching_ngram_size": ngram.prompt_lookup_max,
                }
            case DraftModel() as draft:
                options["speculative_config"] = {
                    "decoding_type": "DraftTarget",
                    "max_draft_len": draft.num_speculative_tokens,
                    "speculative_model_dir": draft.model,
                }
            case None:
                pass
    stream = io.StringIO()
    YAML().dump(options, stream)  # pyright: ignore[reportUnknownMemberType]
    return stream.getvalue()


def triton_script(ranks: int) -> str:
    """One server process a rank, started together by ``mpirun`` when there are more than one (as NVIDIA's own
    launch_triton_server.py does): rank 0 serves, the others hold their share of the model only."""
    own = ["tritonserver", "--model-repository=triton", "--disable-auto-complete-config"]
    if ranks == 1:
        return _script(shlex.join(own), [])
    parts: list[str] = []
    for rank in range(ranks):
        words = ["-n", "1", *own, f"--backend-config=python,shm-region-prefix-name=rank{rank}_"]
        if rank:
            words += ["--model-control-mode=explicit", "--load-model=tensorrt_llm"]
            words += ["--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"]
        parts.append(shlex.join(words) if rank else shlex.join(words) + ' "$@"')
    return _script("", [], whole="exec mpirun --allow-run-as-root " + " : ".join(parts))


def _script(program: str, words: list[str], *, whole: str = "") -> str:
    command = whole or f'exec {" ".join(filter(None, [program, shlex.join(words)]))} "$@"'
    lines = (
        "#!/bin/sh",
        "# Serves this release from wherever it lies; further options are passed on.",
        'cd "$(dirname "$0")/.." || exit 1',
        command,
    )
    return "\n".join(lines) + "\n"


def _ranks(option: str, number: int) -> list[str]:
    return [option, str(number)] if number > 1 else []
