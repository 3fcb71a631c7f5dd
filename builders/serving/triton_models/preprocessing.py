"""Triton Python model: text to token ids, one request at a time of any batch size."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import AutoTokenizer


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        setting = {name: value["string_value"] for name, value in parameters.items()}
        self.tokenizer = AutoTokenizer.from_pretrained(setting["tokenizer_dir"])
        self.add_special_tokens = setting["add_special_tokens"] == "true"
        self.end_id, self.pad_id = int(setting["end_id"]), int(setting["pad_id"])

    def execute(self, requests):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        try:
            return pb_utils.InferenceResponse(self._tensors(request))
        except Exception as error:  # Triton wants an answer to every request
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError(f"preprocessing: {error}"))

    def _tensors(self, request):
        queries = _input(request, "QUERY")
        rows = len(queries)
        ids = [self.tokenizer.encode(_text(row[0]), add_special_tokens=self.add_special_tokens) for row in queries]
        end = _ids(_input(request, "END_ID"), rows, self.end_id)
        pad = _ids(_input(request, "PAD_ID"), rows, self.pad_id)
        longest = max(1, max(len(row) for row in ids))
        padded = [row + [int(pad[place, 0])] * (longest - len(row)) for place, row in enumerate(ids)]
        return [
            _tensor("INPUT_ID", padded),
            _tensor("REQUEST_INPUT_LEN", [[len(row)] for row in ids]),
            pb_utils.Tensor("REQUEST_OUTPUT_LEN", _input(request, "REQUEST_OUTPUT_LEN").astype(np.int32)),
            _tensor("BAD_WORDS_IDS", self._words(_input(request, "BAD_WORDS_DICT"), rows)),
            _tensor("STOP_WORDS_IDS", self._words(_input(request, "STOP_WORDS_DICT"), rows)),
            pb_utils.Tensor("OUT_END_ID", end),
            pb_utils.Tensor("OUT_PAD_ID", pad),
        ]

    def _words(self, words, rows):
        """Token ids of each row's words end to end, and under them where each word ends; -1 fills up."""
        lists = []
        for row in words if words is not None else [[]] * rows:
            flat, ends = [], []
            for word in row:
                flat += self.tokenizer.encode(_text(word), add_special_tokens=False) if _text(word) else []
                if flat and (not ends or len(flat) > ends[-1]):
                    ends.append(len(flat))
            lists.append((flat, ends))
        width = max(1, max(len(flat) for flat, _ in lists))
        return [[flat + [0] * (width - len(flat)), ends + [-1] * (width - len(ends))] for flat, ends in lists]


def _input(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def _ids(given, rows, default):
    return np.full((rows, 1), default, np.int32) if given is None else given.astype(np.int32).reshape(rows, 1)


def _text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _tensor(name, rows):
    return pb_utils.Tensor(name, np.array(rows, dtype=np.int32))
