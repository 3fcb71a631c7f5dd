"""FP8 of a checkpoint larger than the memory it takes: shard by shard, beside a plain copy and beside the whole model.

    uv run benchmarks/streaming.py [--gigabytes 4] [--shard-megabytes 256] [--json]

Generates a Llama-shaped checkpoint of random weights in a temporary folder (needs three times its size on disk).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.home import Home
from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import WorkerJob, run_worker_process

WORKERS = Path(__file__).parent.parent / "builders" / "workers"
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, VOCABULARY = 2048, 8192, 16, 4, 32000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--shard-megabytes", type=int, default=256)
    parser.add_argument("--skip-whole-model", action="store_true", help="It needs some five times the checkpoint.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engineworks-streaming-") as place:
        source = Path(place) / "source"
        size = generate(source, arguments.gigabytes * 1e9, arguments.shard_megabytes * 1e6)
        started = time.monotonic()
        shutil.copytree(source, Path(place) / "copy")
        copy_s = time.monotonic() - started
        shutil.rmtree(Path(place) / "copy")
        document: dict[str, Any] = {
            **figures("llmcompressor_stream.py", source, Path(place) / "stream", size),
            "copy_mb_per_s": round(size / 1e6 / copy_s, 1),
        }
        if not arguments.skip_whole_model:
            document["whole_model"] = figures("llmcompressor_quantize.py", source, Path(place) / "whole", size)
    if arguments.json:
        print(json.dumps(document))
        return
    print(f"{size / 1e9:.2f} GB to FP8: peak {document['peak_rss_mb']} MB, {document['mb_per_s']} MB/s")
    print(f"plain copy: {document['copy_mb_per_s']} MB/s")
    if whole := document.get("whole_model"):
        print(f"whole model: peak {whole['peak_rss_mb']} MB, {whole['mb_per_s']} MB/s")


def figures(worker: str, source: Path, work: Path, size: float) -> dict[str, float]:
    home = Home.find().root
    toolchain = find_toolchain("llmcompressor", home)
    make_ready(toolchain, lambda _message: None)
    for name in ("output", "scratch"):
        (work / name).mkdir(parents=True)
    metrics = run_worker_process(
        WorkerJob(
            stage=worker,
            python=toolchain.python,
            script=WORKERS / worker,
            params={"scheme": "fp8", "options": {}, "keep": ["lm_head"]},
            inputs={"checkpoint": source},
            output=work / "output",
            scratch=work / "scratch",
            work=work,
            threads=2,
            timeout_s=7200,
            on_event=lambda _event: None,
        )
    )
    shutil.rmtree(work)
    return {
        "peak_rss_mb": round(metrics["peak_rss_bytes"] / 1e6),
        "mb_per_s": round(size / 1e6 / metrics["seconds"], 1),
    }


def generate(folder: Path, wanted: float, shard_bytes: float) -> float:
    """Returns the bytes written."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    per_layer = 2 * (HIDDEN * HIDDEN * 2 + 2 * HIDDEN * KV_HEADS * 128 + 3 * HIDDEN * INTERMEDIATE)
    layers = max(1, round((wanted - 4 * VOCABULARY * HIDDEN) / per_layer))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "vocab_size": VOCABULARY,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": layers, "num_attention_heads": HEADS, "head_dim": 128,
        "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-6, "hidden_act": "silu", "dtype": "bfloat16",
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        for name, shape in (
            ("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (KV_HEADS * 128, HIDDEN)),
            ("self_attn.v_proj", (KV_HEADS * 128, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
            ("mlp.gate_proj", (INTERMEDIATE, HIDDEN)), ("mlp.up_proj", (INTERMEDIATE, HIDDEN)),
            ("mlp.down_proj", (HIDDEN, INTERMEDIATE)), ("input_layernorm", (HIDDEN,)),
            ("post_attention_layernorm", (HIDDEN,)),
        ):  # fmt: skip
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    return _write_shards(folder, shapes, shard_bytes, rng)


def _write_shards(
    folder: Path, shapes: dict[str, tuple[int, ...]], shard_bytes: float, rng: np.random.Generator
) -> float:
    shards: list[list[str]] = [[]]
    filled = 0.0
    for name, shape in shapes.items():
        size = 2 * float(np.prod(shape))
        if filled + size > shard_bytes and shards[-1]:
            shards.append([])
            filled = 0.0
        shards[-1].append(name)
        filled += size
    weight_map: dict[str, str] = {}
    total = 0.0
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        place = 0
        for name in names:
            end = place + 2 * int(np.prod(shapes[name]))
            header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [place, end]}
            place, weight_map[name] = end, file
        text = json.dumps(header).encode()
        with (folder / file).open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                values = rng.standard_normal(shapes[name], dtype=np.float32) * 0.02
                stream.write((values.view(np.uint32) >> 16).astype("<u2").tobytes())
        total += place
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


if __name__ == "__main__":
    main()
