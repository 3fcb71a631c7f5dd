"""A conformance double of ``trtllm-build``, for tests on machines that can't have the real one. Nothing else uses it.

It takes exactly the options of the release it stands for (the project's table, read from the real parser), refuses what
the real command refuses with the same exit codes, and writes the documented engine directory. It builds no engine.
``DOUBLE_FAILS``: a file of log lines to print before exiting with 1.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from builders.trtllm.options import table_for
from tests.builders.trtllm.parser import parser_of


def main() -> None:
    version = importlib.metadata.version("tensorrt-llm")
    options = parser_of(table_for(version)).parse_args()  # exits 2 as argparse does
    print(f"[TensorRT-LLM] TensorRT-LLM version: {version}")
    if failing := os.environ.get("DOUBLE_FAILS"):
        print(Path(failing).read_text())
        sys.exit(1)
    checkpoint, output = Path(options.checkpoint_dir), Path(options.output_dir)
    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text())
    architecture, mapping = config["architecture"], config["mapping"]  # KeyError, as the real one
    ranks = sorted(checkpoint.glob("rank*.safetensors"))
    if len(ranks) != mapping["world_size"]:
        raise RuntimeError(f"{len(ranks)} rank files for world_size {mapping['world_size']}")
    output.mkdir(parents=True, exist_ok=True)
    given = {name: value for name, value in vars(options).items() if value is not None}
    build = {name: given.get(name) for name in ("max_input_len", "max_seq_len", "max_batch_size", "max_num_tokens")}
    document = {
        "version": version,
        "pretrained_config": config,
        "build_config": {**build, "max_beam_width": given.get("max_beam_width", 1), "plugin_config": {}},
    }
    (output / "config.json").write_text(json.dumps(document, indent=4))
    for number, rank in enumerate(ranks):
        digest = hashlib.sha256(rank.read_bytes()).hexdigest()
        (output / f"rank{number}.engine").write_text(f"double of an engine for {architecture}: {digest}\n")
    for name in ("output_timing_cache", "timing_cache"):
        if given.get(name):
            with Path(given[name]).open("a") as cache:
                cache.write("timed\n")
    print("[TensorRT-LLM] [I] Total time of building all engines: 00:00:01")


if __name__ == "__main__":
    main()
