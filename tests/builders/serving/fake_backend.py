"""Stands in for ``triton_python_backend_utils``, which exists inside Triton's process only."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from builders.serving.triton import MODELS


class Tensor:
    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values = name, np.asarray(values)

    def as_numpy(self) -> Any:
        return self.values


class TritonError:
    def __init__(self, text: str) -> None:
        self.text = text

    def message(self) -> str:
        return self.text


class InferenceResponse:
    def __init__(self, output_tensors: list[Tensor], error: TritonError | None = None) -> None:
        self.tensors, self.failure = output_tensors, error

    def has_error(self) -> bool:
        return self.failure is not None

    def error(self) -> TritonError | None:
        return self.failure

    def get(self, name: str) -> Any:
        return _named(self.tensors, name)


class Sender:
    def __init__(self) -> None:
        self.sent: list[InferenceResponse] = []
        self.final = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None:
            self.sent.append(response)
        self.final |= flags == 1


class Request:
    def __init__(self, **tensors: Any) -> None:
        self.tensors = [Tensor(name, values) for name, values in tensors.items()]
        self.sender = Sender()

    def get_response_sender(self) -> Sender:
        return self.sender


class Server:
    """Models by name, and what calls them."""

    def __init__(self) -> None:
        self.models: dict[str, Callable[[Request], Any]] = {}


def _named(tensors: list[Tensor], name: str) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor.name == name), None)


class Tokenizer:
    """A token a byte; 0 is a special one."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return ([0] if add_special_tokens else []) + [byte + 1 for byte in text.encode()]

    def decode(self, ids: Any, skip_special_tokens: bool, clean_up_tokenization_spaces: bool = True) -> str:
        text = bytes(int(n) - 1 for n in ids if n).decode(errors="replace")
        return text.replace(" 's", "'s") if clean_up_tokenization_spaces else text


def load(name: str, server: Server, **parameters: str) -> Any:
    """One of our models, initialized."""
    utils: Any = types.ModuleType("triton_python_backend_utils")
    utils.Tensor, utils.TritonError, utils.InferenceResponse = Tensor, TritonError, InferenceResponse
    utils.TritonModelException, utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL = RuntimeError, 1
    utils.get_input_tensor_by_name = lambda request, wanted: _named(request.tensors, wanted)
    utils.get_output_tensor_by_name = lambda response, wanted: _named(response.tensors, wanted)

    class InferenceRequest(Request):
        def __init__(self, model_name: str, inputs: list[Tensor], requested_output_names: list[str]) -> None:
            super().__init__()
            self.model, self.tensors = model_name, inputs

        def exec(self, decoupled: bool = False) -> Any:
            return server.models[self.model](self)

    utils.InferenceRequest = InferenceRequest
    transformers: Any = types.ModuleType("transformers")
    transformers.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda _folder: Tokenizer())
    kept = {module: sys.modules.get(module) for module in ("triton_python_backend_utils", "transformers")}
    sys.modules |= {"triton_python_backend_utils": utils, "transformers": transformers}
    try:
        spec = importlib.util.spec_from_file_location(f"triton_model_{name}", MODELS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for key, value in kept.items():
            if value is None:
                del sys.modules[key]
            else:
                sys.modules[key] = value
    model = module.TritonPythonModel()
    config = {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}
    model.initialize({"model_config": json.dumps(config)})
    return model


def streamed(tokens: list[int]) -> Callable[[Request], Iterator[InferenceResponse]]:
    """An engine that answers with these tokens, one a response."""

    def answer(_request: Request) -> Iterator[InferenceResponse]:
        for token in tokens:
            ids = np.array([[[token]]], np.int32)
            yield InferenceResponse([Tensor("output_ids", ids), Tensor("sequence_length", np.array([[1]], np.int32))])

    return answer


__all__ = ["Path", "Request", "Sender", "Server", "load", "streamed"]
