"""Triton Python model that calls preprocessing, the engine and postprocessing, and streams text as it comes.

A character may span several tokens: text is sent up to the last whole one, and the rest with the next tokens.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

BEFORE = {"QUERY": "text_input", "REQUEST_OUTPUT_LEN": "max_tokens", "BAD_WORDS_DICT": "bad_words",
          "STOP_WORDS_DICT": "stop_words", "END_ID": "end_id", "PAD_ID": "pad_id"}  # fmt: skip
BETWEEN = {"input_ids": "INPUT_ID", "input_lengths": "REQUEST_INPUT_LEN", "request_output_len": "REQUEST_OUTPUT_LEN",
           "stop_words_list": "STOP_WORDS_IDS", "bad_words_list": "BAD_WORDS_IDS", "end_id": "OUT_END_ID",
           "pad_id": "OUT_PAD_ID"}  # fmt: skip
SAMPLING = {"runtime_top_k": "top_k", "runtime_top_p": "top_p", "len_penalty": "length_penalty", "streaming": "stream",
            **{name: name for name in ("temperature", "repetition_penalty", "min_tokens", "presence_penalty",
                                       "frequency_penalty", "seed", "return_log_probs", "beam_width",
                                       "exclude_input_in_output")}}  # fmt: skip
PASSED_ON = ("cum_log_probs", "output_log_probs", "batch_index", "sequence_index")
UNFINISHED = "�"
"""What a tokenizer shows for bytes that are not yet a character."""


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.engine = parameters["tensorrt_llm_model_name"]["string_value"]
        self.accumulate = parameters["accumulate_tokens"]["string_value"] == "true"

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                for tensors in self._answers(request):
                    sender.send(pb_utils.InferenceResponse(tensors))
            except Exception as error:  # Triton wants an answer to every request
                sender.send(pb_utils.InferenceResponse([], error=pb_utils.TritonError(str(error))))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return

    def _answers(self, request):
        prepared = _call("preprocessing", _renamed(request, BEFORE, _input))
        inputs = _renamed(prepared, BETWEEN, pb_utils.get_output_tensor_by_name) + _renamed(request, SAMPLING, _input)
        streaming = _input(request, "stream")
        streaming = streaming is not None and bool(np.any(streaming.as_numpy()))
        rows = {}  # row of the batch: its tokens so far, the text sent; the engine answers rows in any order
        for response in _stream(self.engine, inputs):
            new = pb_utils.get_output_tensor_by_name(response, "output_ids")
            if new is None:
                continue
            lengths = pb_utils.get_output_tensor_by_name(response, "sequence_length").as_numpy()
            extra = _renamed(response, {name: name for name in PASSED_ON}, pb_utils.get_output_tensor_by_name)
            if not streaming or lengths.size > 1:  # a beam may be exchanged for another: nothing to continue
                yield [_text_tensor(_texts(new.as_numpy(), lengths)), *extra]
                continue
            row = pb_utils.get_output_tensor_by_name(response, "batch_index")
            row = 0 if row is None else int(row.as_numpy().flat[0])
            ids, sent = rows.get(row, (np.empty(0, np.int32), ""))
            ids = np.concatenate([ids, new.as_numpy()[0][0][: int(lengths[0][0])]])
            whole = _texts(ids.reshape(1, 1, -1), np.array([[len(ids)]], np.int32))[0][0].decode("utf-8")
            ready = whole.rstrip(UNFINISHED)
            if ready.startswith(sent) and len(ready) > len(sent):
                yield [_text_tensor([[(ready if self.accumulate else ready[len(sent) :]).encode("utf-8")]]), *extra]
                sent = ready
            rows[row] = ids, sent


def _texts(ids, lengths):
    tensors = [
        pb_utils.Tensor("TOKENS_BATCH", ids.astype(np.int32)),
        pb_utils.Tensor("SEQUENCE_LENGTH", lengths.astype(np.int32)),
    ]
    return pb_utils.get_output_tensor_by_name(_call("postprocessing", tensors, ["OUTPUT"]), "OUTPUT").as_numpy()


def _call(model, tensors, outputs=None):
    wanted = outputs or [*BETWEEN.values()]
    request = pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=wanted)
    return _checked(request.exec())


def _stream(model, tensors):
    wanted = ["output_ids", "sequence_length", *PASSED_ON]
    request = pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=wanted)
    for response in request.exec(decoupled=True):
        yield _checked(response)


def _checked(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return response


def _input(request, name):
    return pb_utils.get_input_tensor_by_name(request, name)


def _renamed(holder, names, get):
    """Tensors under the names of the next model; what was not given is left out."""
    found = {ours: get(holder, theirs) for ours, theirs in names.items()}
    return [pb_utils.Tensor(name, tensor.as_numpy()) for name, tensor in found.items() if tensor is not None]


def _text_tensor(rows):
    return pb_utils.Tensor("text_output", np.array(rows, dtype=object))
