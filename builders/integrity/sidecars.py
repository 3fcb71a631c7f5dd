"""What stands beside the weights is carried over: tokenizer, chat template, generation config, custom code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts.digest import digest_file
from builders.integrity.findings import Finding

PATTERNS = ("*.json", "*.jinja", "*.model", "*.txt", "*.py", "LICENSE*", "*.md")
NOT_CARRIED = ("config.json", "model.safetensors.index.json", "README.md", "hf_quant_config.json")
"""Files that the output has its own of."""


def findings(source: Path, output: Path) -> Iterator[Finding]:
    for path in sorted({path for pattern in PATTERNS for path in source.glob(pattern)}):
        if path.name in NOT_CARRIED:
            continue
        copy = output / path.name
        if not copy.is_file():
            yield _error(path.name, "missing", "carried over from the source")
        elif digest_file(copy) != digest_file(path):
            yield _error(path.name, "changed", "the source's, byte for byte")
    if _chat_template(source) != _chat_template(output):
        yield _error("chat template", "changed", "the source's")
    for code in sorted(_custom_code(source)):
        if not (output / code).is_file():
            yield _error(code, "missing", "carried over: the config's auto_map names it")


def _chat_template(folder: Path) -> Any:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    return json.loads(config.read_text(encoding="utf-8")).get("chat_template") if config.is_file() else None


def _custom_code(source: Path) -> set[str]:
    config: dict[str, Any] = json.loads((source / "config.json").read_text(encoding="utf-8"))
    places: dict[str, Any] = config.get("auto_map") or {}
    return {f"{str(place).rpartition('--')[2].partition('.')[0]}.py" for place in places.values()}


def _error(subject: str, seen: str, wanted: str) -> Finding:
    return Finding(check="sidecars", subject=subject, seen=seen, wanted=wanted)
