"""Turn a GGUF file back into a normal Hugging Face checkpoint: dequantized weights, tokenizer, special tokens.

Params: ``file`` (path inside the input ``root``), ``dtype`` (``bfloat16``, ``float16``, ``float32``).
Output: ``config.json``, safetensors, tokenizer files, ``chat_template.jinja`` and ``generation_config.json``.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

from worker_api import Events, Job, Refusal, run_worker

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
}
"""``tokenizer.json``'s ``pre_tokenizer`` for ``tokenizer.ggml.pre``, where transformers' guess (``gpt-2``) was checked
against llama.cpp. With the guess, SmolLM2 splits white space before digits otherwise than it was trained to."""


def work(job: Job, events: Events) -> None:
    file = job.inputs["root"] / job.params["file"]
    if not file.is_file():
        there = ", ".join(sorted(p.name for p in job.inputs["root"].rglob("*.gguf"))) or "none"
        raise Refusal(f"source.file: no {job.params['file']!r} in the source; GGUF files there: {there}")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise Refusal(f"source.file: {file.name} is not a GGUF file (its first four bytes are not 'GGUF')")

    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(job.threads)
    events.progress(0, 3, "steps", "reading the GGUF file")
    # transformers parses the metadata (2 s for 49,152 tokens) and builds the name map anew at every turn.
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    special = _special_tokens(file)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=getattr(torch, job.params["dtype"])
    )
    events.progress(1, 3, "steps", "writing the checkpoint")
    _forget_quantization(model)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if name in special:
            setattr(model.config, name, special[name])
            setattr(model.generation_config, name, special[name])
    model.save_pretrained(job.output)
    for weights in job.output.glob("*.safetensors"):
        weights.chmod(0o644)  # written for the owner alone, and servers run as someone else
    events.progress(2, 3, "steps", "writing the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    for name in ("bos", "eos", "pad"):
        if f"{name}_token_id" in special:
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(special[f"{name}_token_id"]))
    tokenizer.save_pretrained(job.output)
    if special.get("model") == "gpt2":
        if special.get("pre") not in PRE_TOKENIZERS:
            events.log(
                f"pre-tokenizer {special.get('pre')!r} was never checked here: compare token ids with llama.cpp's"
            )
        _restore_byte_level(job.output / "tokenizer.json", PRE_TOKENIZERS.get(special.get("pre", "")))
    for licence in sorted(file.parent.glob("LICENSE*")):
        shutil.copyfile(licence, job.output / licence.name)
    events.progress(3, 3, "steps")


def _special_tokens(file: Path) -> dict[str, Any]:
    """The file's own word on its tokenizer: transformers takes ``eos`` from the vocabulary's order and can be wrong."""
    from gguf import GGUFReader

    fields = GGUFReader(str(file)).fields

    def value(name: str) -> Any:
        return fields[name].contents() if name in fields else None

    found = {
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": value("tokenizer.ggml.padding_token_id"),
        "model": value("tokenizer.ggml.model"),
        "pre": value("tokenizer.ggml.pre"),
    }
    return {name: token for name, token in found.items() if token is not None}


def _forget_quantization(model: Any) -> None:
    # The weights are plain now, but save_pretrained refuses a model that still carries its loader's marks.
    model.hf_quantizer = None
    model.is_quantized = False
    for name in ("quantization_method", "is_loaded_from_gguf"):
        if hasattr(model, name):
            setattr(model, name, None)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _restore_byte_level(file: Path, pre_tokenizer: dict[str, Any] | None) -> None:
    """GGUF's ``gpt2`` tokenizers are byte-level BPE, but transformers gives them parts of SentencePiece's.

    llama.cpp's converter tells the kinds apart by these fields, not by the vocabulary.
    """
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    tokenizer["model"]["byte_fallback"] = False
    tokenizer["decoder"] = {**_BYTE_LEVEL, "add_prefix_space": True}
    if pre_tokenizer is not None:
        tokenizer["pre_tokenizer"] = pre_tokenizer
    file.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_worker(work)
