"""Files of a Hugging Face checkpoint that every quantizer treats alike. Standard library only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.gguf", "*.onnx")


def carry_over(source: Path, output: Path) -> None:
    """Tokenizer, chat template, generation config, licence, custom code: byte for byte as in the source."""
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_dir() or str(relative) == "config.json" or any(path.match(pattern) for pattern in WEIGHTS):
            continue
        (output / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, output / relative)


def keep_config(source: Path, output: Path, quantization: dict[str, Any], dtype: str | None = None) -> None:
    """The source's own config with a ``quantization_config``: tools of an older transformers would drop fields."""
    config = read_json(source / "config.json")
    if dtype:
        config["dtype" if "dtype" in config else "torch_dtype"] = dtype
    write_json(output / "config.json", config | {"quantization_config": quantization})


def samples(folder: Path) -> list[list[int]]:
    """Token ids of the prepared calibration samples, in their order."""
    lines = (folder / "calibration.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["input_ids"] for line in lines]


def transformers_4_view(source: Path, view: Path) -> Path:
    """The checkpoint in the words of transformers 4, which some tools need: links, and two files rewritten.

    transformers 5 writes ``rope_parameters``, ``dtype`` and ``tokenizer_class: TokenizersBackend``, which transformers
    4 can't read.
    """
    shutil.rmtree(view, ignore_errors=True)
    view.mkdir(parents=True)
    for path in source.iterdir():
        (view / path.name).symlink_to(path)
    config = read_json(source / "config.json")
    rope = dict(config.pop("rope_parameters", None) or {})
    if "rope_theta" in rope:
        config["rope_theta"] = rope.pop("rope_theta")
    if rope and rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    if "dtype" in config:
        config.setdefault("torch_dtype", config.pop("dtype"))
    write_json(view / "config.json", config)
    tokenizer = view / "tokenizer_config.json"
    if tokenizer.exists():
        values = read_json(tokenizer)
        if values.get("tokenizer_class") == "TokenizersBackend":
            write_json(tokenizer, values | {"tokenizer_class": "PreTrainedTokenizerFast"})
    return view


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, values: dict[str, Any]) -> None:
    path.unlink(missing_ok=True)  # a link to the source, which is not ours to change
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
