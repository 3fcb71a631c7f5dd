"""Stage function that writes what serves an engine: tokenizer, Triton repository, launch files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from builders.run_stage import Job
from builders.serving.scripts import OPTIONS_FILE, triton_script, trtllm_options, trtllm_serve_script
from builders.serving.triton import TritonOptions, check_repository, write_repository
from builders.trtllm.settings import EngineSettings
from recipes.serving import Serving

TOKENIZER_FILES = (
    "tokenizer*", "special_tokens_map.json", "vocab.json", "merges.txt", "*.model", "added_tokens.json",
    "chat_template.*", "generation_config.json", "config.json",
)  # fmt: skip


def write(job: Job) -> None:
    """Params: ``settings``, ``serving``, ``tensorrt_llm``, ``tensor_parallel``, ``pipeline_parallel``. Inputs:
    ``checkpoint``, ``engine``."""
    settings = EngineSettings.model_validate(job.params["settings"])
    serving = Serving.model_validate(job.params["serving"])
    built = _build_config(job.inputs["engine"])
    tp, pp = int(job.params["tensor_parallel"]), int(job.params["pipeline_parallel"])
    _copy_tokenizer(job.inputs["checkpoint"], job.output / "tokenizer")
    limits = {
        name: int(built.get(name) or getattr(settings, name))
        for name in ("max_batch_size", "max_num_tokens", "max_seq_len", "max_input_len")
    }
    eos, pad = _special_tokens(job.inputs["checkpoint"])
    window = _sliding_window(job.inputs["checkpoint"])
    options = TritonOptions(
        max_batch_size=min(serving.max_batch_size or limits["max_batch_size"], limits["max_batch_size"]),
        max_beam_width=int(built.get("max_beam_width") or 1),
        kv_cache_free_gpu_mem_fraction=serving.gpu_memory_utilization,
        enable_kv_cache_reuse=serving.prefix_caching,
        max_attention_window_size=window,
        ranks=tp * pp,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    write_repository(job.output / "triton", options)
    check_repository(job.output / "triton")
    del limits["max_input_len"]  # Triton's and the server's limit on a prompt is that on the sequence
    folder = job.output / "serve"
    folder.mkdir()
    (folder / "trtllm-serve.sh").write_text(
        trtllm_serve_script(
            serving,
            backend="tensorrt",
            version=job.params["tensorrt_llm"],
            tensor_parallel=tp,
            pipeline_parallel=pp,
            limits=limits,
        ),
        encoding="utf-8",
    )
    (folder / OPTIONS_FILE).write_text(
        trtllm_options(serving, backend="tensorrt", attention_window=window), encoding="utf-8"
    )
    (folder / "triton.sh").write_text(triton_script(tp * pp), encoding="utf-8")


def _build_config(engine: Path) -> dict[str, Any]:
    """What the engine itself says it was built for."""
    config = json.loads((engine / "engine" / "config.json").read_text(encoding="utf-8"))
    return dict(config.get("build_config") or {})


def _copy_tokenizer(checkpoint: Path, folder: Path) -> None:
    folder.mkdir()
    for path in sorted({path for pattern in TOKENIZER_FILES for path in checkpoint.glob(pattern) if path.is_file()}):
        shutil.copyfile(path, folder / path.name)


def _special_tokens(checkpoint: Path) -> tuple[int, int]:
    """End and padding ids, from the generation config or else the config. A model without padding pads with its end."""
    merged: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):
        if (checkpoint / name).is_file():
            values = json.loads((checkpoint / name).read_text(encoding="utf-8"))
            merged |= {key: value for key, value in values.items() if value is not None}
    eos = _first(merged.get("eos_token_id"), 2)
    return eos, _first(merged.get("pad_token_id"), eos)


def _sliding_window(checkpoint: Path) -> int | None:
    """Mistral's is on whenever it is given, Qwen's when ``use_sliding_window`` says so."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return config.get("sliding_window") if config.get("use_sliding_window", True) else None


def _first(value: int | list[int] | None, default: int) -> int:
    if isinstance(value, list):
        return value[0] if value else default
    return default if value is None else value
