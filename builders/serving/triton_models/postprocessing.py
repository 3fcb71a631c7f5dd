"""Triton Python model: token ids to text. Tokens are [batch, beam, length], lengths [batch, beam]."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import AutoTokenizer


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        setting = {name: value["string_value"] for name, value in parameters.items()}
        self.tokenizer = AutoTokenizer.from_pretrained(setting["tokenizer_dir"])
        self.skip_special_tokens = setting["skip_special_tokens"] == "true"

    def execute(self, requests):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        try:
            tokens = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
            lengths = pb_utils.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy()
            texts = [
                [self._decode(beam[: lengths[row][place]]) for place, beam in enumerate(beams)]
                for row, beams in enumerate(tokens)
            ]
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, dtype=object))])
        except Exception as error:  # Triton wants an answer to every request
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError(f"postprocessing: {error}"))

    def _decode(self, ids):
        """As the tokens say: tidied spaces would change text that a stream has already sent."""
        text = self.tokenizer.decode(
            ids, skip_special_tokens=self.skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return text.encode("utf-8")
