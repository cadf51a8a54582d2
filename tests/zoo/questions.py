# SPDX-License-Identifier: MPL-2.0
# Questions of gst-trt serve to a real server of OpenAI's API: `transformers serve`, with a model that sees, of random weights, which is
# made here. Its answers are no language, but each came of the picture that was sent.
#
#   python tests/zoo/questions.py FOLDER PROGRAM
#
# Ends with status 1 where answers do not come.
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPImageProcessor, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor, PreTrainedTokenizerFast

SIDE, PATCH, WIDTH = 56, 14, 32
ANSWERS = 6
LIMIT_S = 120
ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ '<image>' if part.type.startswith('image') else part.text }}{% endfor %}{% endif %}\n"
    "{% endfor %}assistant: "
)


def save_model(folder):
    """A model whose text is bytes, so that it needs no vocabulary of anyone."""
    words = {byte: number for number, byte in enumerate(sorted(ByteLevel.alphabet()))}
    bytes_ = Tokenizer(models.BPE(vocab=words, merges=[]))
    bytes_.pre_tokenizer, bytes_.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=bytes_, bos_token="<s>", eos_token="</s>", pad_token="<pad>", additional_special_tokens=["<image>"]
    )
    size = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"eos_token_id": tokens.eos_token_id, "pad_token_id": tokens.pad_token_id}
    text = LlamaConfig(vocab_size=len(tokens), num_key_value_heads=2, max_position_embeddings=4096, bos_token_id=tokens.bos_token_id, **ends, **size)
    sight = CLIPVisionConfig(image_size=SIDE, patch_size=PATCH, projection_dim=WIDTH, **size)
    config = LlavaConfig(vision_config=sight, text_config=text, image_token_index=tokens.convert_tokens_to_ids("<image>"), vision_feature_layer=-1)
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config)
    model.generation_config.update(**ends)
    pictures = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    processor = LlavaProcessor(
        image_processor=pictures, tokenizer=tokens, patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until(what, is_so):
    end, again = time.monotonic() + LIMIT_S, threading.Event()
    while not (found := is_so()):
        if time.monotonic() > end:
            sys.exit(f"questions: no {what} within {LIMIT_S} s")
        again.wait(0.1)
    return found


def answers_at(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def answered(file):
    lines = file.read_text().splitlines(True) if file.exists() else []
    events = [json.loads(line)["event"] for line in lines if line.endswith("\n")]
    return [event for event in events if event["event"] == "answer"]


folder, program = Path(sys.argv[1]), sys.argv[2]
folder.mkdir(parents=True, exist_ok=True)
save_model(folder / "model")
port, out = free_port(), folder / "answers.jsonl"
out.unlink(missing_ok=True)
(folder / "config.toml").write_text(f"""
[[model]]
name = "shapes"
file = "{ROOT}/models/shapes-320.onnx"
backend = "cpu"
infer = "interval=5"

[track]

[analytics]
config = '{{"zones": [{{"id": "all", "points": [[0, 0], [1, 0], [1, 1], [0, 1]]}}]}}'

[[ask]]
name = "what"
url = "http://127.0.0.1:{port}"
model = "{folder / "model"}"
question = "What is it?"
at-most = "10/s"
max-tokens = 16

[[publish]]
location = "{out}"
per = "event"

[[source]]
name = "street"
address = "{ROOT}/data/sample.mp4"
loop = true
sync = true
""")
offline = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1")
command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--device", "cpu", "--host", "127.0.0.1", "--port", str(port), str(folder / "model")]
with (folder / "server.log").open("w") as log:
    server = subprocess.Popen(command, env=offline, stdout=log, stderr=subprocess.STDOUT)
    service = None
    try:
        until("server", lambda: server.poll() is not None or answers_at(f"http://127.0.0.1:{port}/health"))
        if server.poll() is not None:
            sys.exit(f"questions: {(folder / 'server.log').read_text()[-2000:]}")
        service = subprocess.Popen([program, "serve", str(folder / "config.toml")], stderr=(folder / "journal").open("w"))
        until("answers", lambda: service.poll() is not None or len(answered(out)) >= ANSWERS)
        service.send_signal(signal.SIGTERM)
        status = service.wait(LIMIT_S)
    finally:
        for process in (server, service):
            if process and process.poll() is None:
                process.kill()
                process.wait()
answers = answered(out)
if status != 0 or len(answers) < ANSWERS or any(not event["answer"] or event["question"] != "What is it?" for event in answers):
    sys.exit(f"questions: status {status}, {answers}\n{(folder / 'journal').read_text()}")
took = sorted(event["took-ms"] for event in answers)
print(f"{len(answers)} questions answered by transformers serve, in {took[0]} to {took[-1]} ms")
