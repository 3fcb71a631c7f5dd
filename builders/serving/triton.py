"""A complete Triton model repository for an engine, and its check by Triton's own definition of a configuration.

Configurations are built as ``ModelConfig`` messages (``tritonclient`` ships their protobuf definition) and written as
text. Paths in them start at the release's folder, where ``serve/triton.sh`` starts the server.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from builders.serving.triton_interface import (
    ENGINE_IN,
    ENGINE_OUT,
    ENSEMBLE,
    POSTPROCESSING_IN,
    POSTPROCESSING_OUT,
    PREPROCESSING_IN,
    PREPROCESSING_OUT,
    REQUEST,
    RESPONSE,
    Port,
)  # fmt: skip
from recipes.errors import StageFailed
from recipes.strict import Strict

MODELS = Path(__file__).parent / "triton_models"
"""Our Python models, copied into the repository."""
EXECUTOR = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"
"""Where NVIDIA's Triton container has the process that holds one rank."""


class TritonOptions(Strict):
    """What is filled into the repository."""

    max_batch_size: Annotated[int, Field(ge=1)]
    max_beam_width: Annotated[int, Field(ge=1)] = 1
    kv_cache_free_gpu_mem_fraction: float = 0.9
    """Of the memory that is free beside the engine."""
    enable_kv_cache_reuse: bool = True
    batch_scheduler_policy: Literal["max_utilization", "guaranteed_no_evict"] = "guaranteed_no_evict"
    max_attention_window_size: int | None = None
    """Tokens that attention looks back, for models with a sliding window: the engine does not know it."""
    max_queue_delay_microseconds: int = 0
    ranks: int = 1
    eos_token_id: int
    pad_token_id: int
    engine: str = "engine"
    """Folders, from the release's own."""
    tokenizer: str = "tokenizer"


def write_repository(folder: Path, options: TritonOptions) -> None:
    """All five models: ensemble, preprocessing, tensorrt_llm, postprocessing, tensorrt_llm_bls."""
    for name, config in _configs(options).items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(_text(config), encoding="utf-8")
        if (source := MODELS / f"{name}.py").is_file():
            shutil.copyfile(source, version / "model.py")
        else:
            (version / ".keep").touch()  # Triton wants the folder, and S3 keeps no empty one


def check_repository(folder: Path) -> None:
    """Parse every configuration and follow every wire of the ensemble. Raises :class:`StageFailed`."""
    configs = {path.parent.name: _parsed(path) for path in sorted(folder.glob("*/config.pbtxt"))}
    for name, *_ in (*ENSEMBLE, ("ensemble",), ("tensorrt_llm_bls",)):
        if name not in configs:
            raise _wrong(f"no model {name} in the repository")
    for name, config in configs.items():
        if config.name != name:
            raise _wrong(f"{name}/config.pbtxt is of a model called {config.name!r}")
        if config.backend == "python" and not (folder / name / "1" / "model.py").is_file():
            raise _wrong(f"{name} is a Python model without model.py")
    _check_wires(configs)


def _check_wires(configs: dict[str, Any]) -> None:
    """Every tensor of the ensemble comes from the request or an earlier step, as its user wants it."""
    ensemble = configs["ensemble"]
    known = {port.name: port for port in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        model = configs.get(step.model_name)
        if model is None:
            raise _wrong(f"the ensemble calls {step.model_name}, which is not in the repository")
        inputs = {port.name: port for port in model.input}
        outputs = {port.name: port for port in model.output}
        for name, source in step.input_map.items():
            if name not in inputs:
                raise _wrong(f"{step.model_name} has no input {name}")
            if not _fits(known.get(source), inputs[name]):
                raise _wrong(
                    f"{step.model_name}.{name} is fed from {source}, which is not there or of another type or shape"
                )
        if missing := [name for name, port in inputs.items() if not port.optional and name not in step.input_map]:
            raise _wrong(f"{step.model_name} needs {missing[0]} and the ensemble does not give it")
        for name, target in step.output_map.items():
            if name not in outputs:
                raise _wrong(f"{step.model_name} has no output {name}")
            known[target] = outputs[name]
    for port in ensemble.output:
        if not _fits(known.get(port.name), port):
            raise _wrong(f"the ensemble's output {port.name} comes from nowhere, or as another type or shape")


def _fits(given: Any, wanted: Any) -> bool:
    """Same type, and dimensions that agree wherever both are known (-1: any)."""
    if given is None or given.data_type != wanted.data_type or len(given.dims) != len(wanted.dims):
        return False
    return all(one == other or -1 in (one, other) for one, other in zip(given.dims, wanted.dims, strict=True))


def _configs(options: TritonOptions) -> dict[str, Any]:
    def python(name: str, inputs: Iterable[Port], outputs: Iterable[Port], **parameters: str) -> Any:
        config = _config(name, options, inputs, outputs, parameters)
        config.backend = "python"
        group = config.instance_group.add()
        group.count, group.kind = 1, group.KIND_CPU
        return config

    bls = python(
        "tensorrt_llm_bls", REQUEST, RESPONSE, accumulate_tokens="false", tensorrt_llm_model_name="tensorrt_llm"
    )
    bls.model_transaction_policy.decoupled = True
    return {
        "preprocessing": python(
            "preprocessing",
            PREPROCESSING_IN,
            PREPROCESSING_OUT,
            tokenizer_dir=options.tokenizer,
            add_special_tokens="true",
            end_id=str(options.eos_token_id),
            pad_id=str(options.pad_token_id),
        ),
        "tensorrt_llm": _engine(options),
        "postprocessing": python(
            "postprocessing",
            POSTPROCESSING_IN,
            POSTPROCESSING_OUT,
            tokenizer_dir=options.tokenizer,
            skip_special_tokens="true",
        ),
        "ensemble": _ensemble(options),
        "tensorrt_llm_bls": bls,
    }


def _engine(options: TritonOptions) -> Any:
    """The engine itself: requests join and leave the running batch (in-flight batching)."""
    size = options.max_attention_window_size
    window = {"max_attention_window_size": str(size)} if size else {}
    config = _config(
        "tensorrt_llm",
        options,
        ENGINE_IN,
        ENGINE_OUT,
        {
            "gpt_model_type": "inflight_fused_batching",
            "gpt_model_path": options.engine,
            "max_beam_width": str(options.max_beam_width),
            "batch_scheduler_policy": options.batch_scheduler_policy,
            "kv_cache_free_gpu_mem_fraction": f"{options.kv_cache_free_gpu_mem_fraction:g}",
            "enable_kv_cache_reuse": str(options.enable_kv_cache_reuse).lower(),
            "exclude_input_in_output": "true",
            "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
            **window,
            "executor_worker_path": EXECUTOR,
        },
    )
    config.backend = "tensorrtllm"
    config.model_transaction_policy.decoupled = True
    config.dynamic_batching.preferred_batch_size.append(options.max_batch_size)
    config.dynamic_batching.max_queue_delay_microseconds = options.max_queue_delay_microseconds
    group = config.instance_group.add()
    group.count, group.kind = 1, group.KIND_CPU  # the backend itself places the ranks on GPUs
    return config


def _ensemble(options: TritonOptions) -> Any:
    config = _config("ensemble", options, REQUEST, RESPONSE, {})
    config.platform = "ensemble"
    for model, inputs, outputs in ENSEMBLE:
        step = config.ensemble_scheduling.step.add()
        step.model_name, step.model_version = model, -1
        step.input_map.update(inputs)
        step.output_map.update(outputs)
    return config


def _config(
    name: str, options: TritonOptions, inputs: Iterable[Port], outputs: Iterable[Port], parameters: dict[str, str]
) -> Any:
    protocol = _protocol()
    config = protocol.ModelConfig(name=name, max_batch_size=options.max_batch_size)
    for port in inputs:
        made = config.input.add(name=port.name, data_type=protocol.DataType.Value(f"TYPE_{port.type}"))
        made.dims.extend(port.dims)
        made.optional, made.allow_ragged_batch = port.optional, port.ragged
        if port.scalar:
            made.reshape.SetInParent()
    for port in outputs:
        made = config.output.add(name=port.name, data_type=protocol.DataType.Value(f"TYPE_{port.type}"))
        made.dims.extend(port.dims)
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    return config


def _protocol() -> Any:
    from tritonclient.grpc import model_config_pb2  # pyright: ignore[reportMissingTypeStubs]

    return model_config_pb2


def _text(config: Any) -> str:
    from google.protobuf import text_format

    return text_format.MessageToString(config)


def _parsed(path: Path) -> Any:
    from google.protobuf import text_format

    text = path.read_text(encoding="utf-8")
    if "${" in text:
        raise _wrong(f"{path.parent.name}/config.pbtxt has an unfilled placeholder")
    try:
        return text_format.Parse(text, _protocol().ModelConfig())
    except text_format.ParseError as error:
        raise _wrong(f"{path.parent.name}/config.pbtxt: {error}") from None


def _wrong(message: str) -> StageFailed:
    return StageFailed("triton repository", "tool", message)
