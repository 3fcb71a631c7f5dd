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

LEFTOVERS = ("_model_name_or_path", "unk_token_id")
"""What transformers copies from GGUF metadata into ``config.json`` and no model reads."""


def work(job: Job, events: Events) -> None:
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    torch.set_num_threads(job.threads)
    # transformers parses the metadata (2 s for 49,152 tokens) and builds the name map anew at every turn.
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    file = _gguf_file(job.inputs["root"], job.params["file"])
    events.progress(0, 3, "steps", "reading the GGUF file")
    metadata = _metadata(file)
    special = {f"{name}_token_id": metadata[name] for name in ("bos", "eos", "pad") if name in metadata}
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=getattr(torch, job.params["dtype"])
    )
    events.progress(1, 3, "steps", "writing the checkpoint")
    _forget_quantization(model)
    model.config.update(special)
    model.generation_config = GenerationConfig(**special)  # GGUF files hold no sampling defaults: none are made up
    model.save_pretrained(job.output)
    for weights in job.output.glob("*.safetensors"):
        weights.chmod(0o644)  # written for the owner alone, and servers run as someone else
    _clean_config(job.output / "config.json")
    events.progress(2, 3, "steps", "writing the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    for name, token in special.items():
        setattr(tokenizer, name.removesuffix("_id"), tokenizer.convert_ids_to_tokens(token))
    tokenizer.save_pretrained(job.output)
    byte_level = metadata.get("model") == "gpt2"
    if byte_level:
        if metadata.get("pre") not in PRE_TOKENIZERS:
            events.log(
                f"pre-tokenizer {metadata.get('pre')!r} was never checked here: compare token ids with llama.cpp's"
            )
        _restore_byte_level(job.output / "tokenizer.json", PRE_TOKENIZERS.get(metadata.get("pre", "")))
    _clean_tokenizer_config(
        job.output / "tokenizer_config.json", model.config.max_position_embeddings, byte_level=byte_level
    )
    for licence in sorted(file.parent.glob("LICENSE*")):
        shutil.copyfile(licence, job.output / licence.name)
    events.progress(3, 3, "steps")


def _gguf_file(root: Path, name: str) -> Path:
    file = root / name
    if not file.is_file():
        there = ", ".join(sorted(path.name for path in root.rglob("*.gguf"))) or "none"
        raise Refusal(f"source.file: no {name!r} in the source; GGUF files there: {there}")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise Refusal(f"source.file: {file.name} is not a GGUF file (its first four bytes are not 'GGUF')")
    return file


def _metadata(file: Path) -> dict[str, Any]:
    """The file's own word on its tokenizer: transformers takes ``eos`` from the vocabulary's order and can be wrong."""
    import gguf

    try:
        fields = gguf.GGUFReader(str(file)).fields
    except (ValueError, IndexError, OSError) as error:  # what numpy raises where the file ends too early
        raise Refusal(
            f"source.file: {file.name} ({file.stat().st_size:,} bytes) ends too early or is damaged ({error})",
            "Fetch it again",
        ) from None
    if "split.count" in fields and fields["split.count"].contents() > 1:
        raise Refusal(
            f"source.file: {file.name} is one of {fields['split.count'].contents()} parts",
            "Join them first: llama-gguf-split --merge FIRST-PART WHOLE.gguf",
        )
    names = {
        "bos": "tokenizer.ggml.bos_token_id",
        "eos": "tokenizer.ggml.eos_token_id",
        "pad": "tokenizer.ggml.padding_token_id",
        "model": "tokenizer.ggml.model",
        "pre": "tokenizer.ggml.pre",
    }
    return {name: fields[key].contents() for name, key in names.items() if key in fields}


def _forget_quantization(model: Any) -> None:
    # The weights are plain now, but save_pretrained refuses a model that still carries its loader's marks.
    model.hf_quantizer = None
    model.is_quantized = False
    for name in ("quantization_method", "is_loaded_from_gguf"):
        if hasattr(model, name):
            setattr(model, name, None)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _clean_config(file: Path) -> None:
    """Drop :data:`LEFTOVERS`, and write GGUF's 32-bit numbers as they were meant: 1e-05, not 9.999999747378752e-06."""
    import numpy

    def meant(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: meant(inner) for name, inner in value.items()}
        if isinstance(value, float) and float(numpy.float32(value)) == value:
            return float(str(numpy.float32(value)))  # the shortest decimal that is this 32-bit number
        return value

    config = json.loads(file.read_text(encoding="utf-8"))
    _write_json(file, meant({name: value for name, value in config.items() if name not in LEFTOVERS}))


def _clean_tokenizer_config(file: Path, context: int, *, byte_level: bool) -> None:
    """Keep what describes the tokenizer, not how transformers happened to load it."""
    config = json.loads(file.read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name.endswith("_token") or name == "add_prefix_space"}
    kept["model_max_length"] = context
    # The name that every version of transformers knows for "exactly what tokenizer.json says".
    kept["tokenizer_class"] = "PreTrainedTokenizerFast"
    # Byte-level text decodes as it was encoded; the clean-up would eat spaces before punctuation.
    kept["clean_up_tokenization_spaces"] = config.get("clean_up_tokenization_spaces", False) and not byte_level
    _write_json(file, dict(sorted(kept.items())))


def _restore_byte_level(file: Path, pre_tokenizer: dict[str, Any] | None) -> None:
    """GGUF's ``gpt2`` tokenizers are byte-level BPE, but transformers gives them parts of SentencePiece's.

    llama.cpp's converter tells the kinds apart by these fields, not by the vocabulary.
    """
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    tokenizer["model"]["byte_fallback"] = False
    tokenizer["decoder"] = {**_BYTE_LEVEL, "add_prefix_space": True}
    if pre_tokenizer is not None:
        tokenizer["pre_tokenizer"] = pre_tokenizer
    _write_json(file, tokenizer)


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_worker(work)
