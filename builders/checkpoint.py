"""A Hugging Face checkpoint directory: is it whole, and what is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.safetensors_header import BrokenFile, Tensor, read_header
from recipes.errors import BadRequest, Problem

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class Checkpoint:
    """The checked contents of a checkpoint directory."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors.values())


def read_checkpoint(folder: Path, where: str = "source", *, allow_pickle: bool = False) -> Checkpoint:
    """Read config, index and every shard's header. Raises :class:`BadRequest` with everything that is wrong.

    A checkpoint of pickles has no headers to read: with ``allow_pickle`` its ``tensors`` are empty.
    """

    def refuse(seen: str, wanted: str, hint: str = "") -> BadRequest:
        return BadRequest(Problem(where, seen, wanted, hint))

    if not folder.is_dir():
        raise refuse(f"no directory {folder}", "a checkpoint directory")
    config = _read_json(folder / "config.json", where)
    if not (folder / INDEX).exists() and not list(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles and allow_pickle:
            return Checkpoint(folder, config, {})
        if pickles:
            raise refuse(
                f"pickle weights ({', '.join(pickles[:3])}), which can run code when they are loaded",
                "safetensors",
                "Convert the checkpoint, or set source.allow_pickle: true if you trust where it comes from",
            )
        raise refuse(f"no weights in {folder}", "model.safetensors, or shards with their index")
    weight_map = _weight_map(folder, where)
    names = (
        sorted(set(weight_map.values())) if weight_map else [path.name for path in sorted(folder.glob("*.safetensors"))]
    )
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise refuse(
            f"{len(missing)} of {len(names)} shards missing: {', '.join(missing[:5])}",
            f"every shard that {INDEX} names",
            "Fetch them again",
        )
    problems: list[Problem] = []
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            tensors |= read_header(folder / name)
        except BrokenFile as error:
            problems.append(Problem(f"{where} {name}", str(error), "a whole safetensors file", "Fetch it again"))
        except OSError as error:
            problems.append(Problem(f"{where} {name}", error.strerror or "unreadable", "a readable file"))
    if not problems and weight_map:
        wrong = [name for name, file in weight_map.items() if name not in tensors or tensors[name].file != file]
        if wrong:
            problems.append(
                Problem(
                    f"{where} {INDEX}",
                    f"names {wrong[0]} in {weight_map[wrong[0]]}, which lacks it",
                    "an index of the shards that are there",
                )
            )
    if not problems and not tensors:
        problems.append(Problem(where, "weights without a single tensor", "a model"))
    if problems:
        raise BadRequest(problems)
    return Checkpoint(folder, config, tensors)


def _weight_map(folder: Path, where: str) -> dict[str, str]:
    if not (folder / INDEX).exists():
        return {}
    weight_map = _read_json(folder / INDEX, where).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadRequest(Problem(f"{where} {INDEX}", "no weight_map", "a map of tensor names to shards"))
    return {str(name): Path(str(file)).name for name, file in weight_map.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _read_json(path: Path, where: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadRequest(Problem(where, f"no {path.name} in {path.parent}", "a Hugging Face checkpoint")) from None
    except (OSError, ValueError) as error:
        raise BadRequest(Problem(f"{where} {path.name}", f"can't be read ({error})", "a JSON object")) from None
    if not isinstance(value, dict):
        raise BadRequest(Problem(f"{where} {path.name}", "not a JSON object", "a JSON object"))
    return value  # pyright: ignore[reportUnknownVariableType]
