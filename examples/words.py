#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Makes what a detector takes that looks for words: an array with a vector for each word, and a text file with their names.

    words.py OUT WORD... [--text-model MODEL] [--count COUNT], such as words.py words.npy "red car" dog person

OUT is for input-values of trtinfer, as in input-values=txt_feats=words.npy. MODEL is the text model that the detector was trained with:

    yolov8s-worldv2.pt              a checkpoint of YOLO-World or YOLOE, whose text model Ultralytics' package loads
    openai/clip-vit-base-patch32    a CLIP of Hugging Face, loaded by transformers; the one of YOLO-World, and the default
    open_clip:ViT-B-32/openai       a model of open_clip and its weights
    text.onnx                       a text model in ONNX with its tokenizer.json in the same folder, by onnxruntime and tokenizers

It needs NumPy and what loads MODEL: ultralytics, transformers and torch, open_clip_torch, or onnxruntime and tokenizers. pip install brings
them. The detector itself needs none of them: the files can be made on another machine."""
import argparse
import pathlib
import sys

try:
    import numpy
except ImportError as missing:
    sys.exit(f"Error: {missing}. The vectors are an array of NumPy: pip install numpy")

# What fills the array up, as YOLO-World's own demo does, and its name.
BLANK, UNNAMED = " ", "-"
NUMBERS = {"tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32, "tensor(float)": numpy.float32}


def of_ultralytics(words, checkpoint):
    from ultralytics import YOLO

    return YOLO(checkpoint).model.get_text_pe(words)[0].detach().float().cpu().numpy()


def of_open_clip(words, name):
    import open_clip

    model, _, weights = name.partition("/")
    network = open_clip.create_model(model, pretrained=weights or None).eval()
    return network.encode_text(open_clip.get_tokenizer(model)(words)).detach().float().numpy()


def of_transformers(words, name):
    from transformers import AutoTokenizer, CLIPTextModelWithProjection

    tokens = AutoTokenizer.from_pretrained(name)(words, padding=True, return_tensors="pt")
    return CLIPTextModelWithProjection.from_pretrained(name).eval()(**tokens).text_embeds.detach().numpy()


def of_onnx(words, file):
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(pathlib.Path(file).with_name("tokenizer.json")))
    if tokenizer.padding is None:
        tokenizer.enable_padding()
    tokens = tokenizer.encode_batch(words)
    columns = {"input_ids": [each.ids for each in tokens], "attention_mask": [each.attention_mask for each in tokens]}
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    unknown = [each.name for each in session.get_inputs() if each.name not in columns]
    if unknown:
        sys.exit(f"Error: {file} has the input {unknown[0]}, and only {' and '.join(columns)} are known. Export the text model with these.")
    given = {each.name: numpy.array(columns[each.name], NUMBERS[each.type]) for each in session.get_inputs()}
    outputs = {each.name: each for each in session.get_outputs()}
    vectors = next((name for name in ("text_embeds", "sentence_embedding", "pooler_output") if name in outputs), None)
    return session.run([vectors or next(iter(outputs))], given)[0]


def loader(model):
    """What makes vectors by that model, what it loads, and the packages that this needs."""
    if model.endswith(".onnx"):
        return of_onnx, model, "onnxruntime tokenizers"
    if model.endswith(".pt"):
        return of_ultralytics, model, "ultralytics"
    if model.startswith("open_clip:"):
        return of_open_clip, model.removeprefix("open_clip:"), "open_clip_torch"
    return of_transformers, model, "transformers torch"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", type=pathlib.Path)
    parser.add_argument("words", metavar="WORD", nargs="+")
    parser.add_argument("--text-model", metavar="MODEL", default="openai/clip-vit-base-patch32")
    parser.add_argument("--count", type=int, help="fill up to so many words, for models that take no other number")
    arguments = parser.parse_args()
    words = [" ".join(word.split()) for word in arguments.words]
    if not all(words):
        parser.error("a word is empty")
    if arguments.out.suffix != ".npy":
        parser.error(f"OUT has to end in .npy, and is {arguments.out}")
    out, names = arguments.out, arguments.out.with_suffix(".txt")
    # Before the text model is loaded, which may take minutes.
    if not out.parent.is_dir():
        parser.error(f"there is no folder {out.parent}")
    for file in (out, names):
        if file.is_dir():
            parser.error(f"{file} is a folder, and would be a file")
    blanks = (len(words) if arguments.count is None else arguments.count) - len(words)
    if blanks < 0:
        parser.error(f"{len(words)} words are given, and --count is {arguments.count}")

    make, model, packages = loader(arguments.text_model)
    try:
        vectors = make(words + [BLANK] * blanks, model)
    except ImportError as error:
        sys.exit(f"Error: {error}. For the text model {arguments.text_model}: pip install {packages}")
    except Exception as error:  # each package has its own
        sys.exit(f"Error: the text model {arguments.text_model} cannot be used: {error}")
    vectors = numpy.asarray(vectors, numpy.float32)
    if vectors.ndim != 2 or len(vectors) != len(words) + blanks:
        sys.exit(f"Error: {arguments.text_model} gives {vectors.shape} for {len(words) + blanks} words, and not a vector for each.")
    vectors /= numpy.linalg.norm(vectors, axis=-1, keepdims=True)
    try:
        with open(out, "wb") as file:
            numpy.save(file, numpy.ascontiguousarray(vectors[None]))
        names.write_text("".join(f"{name}\n" for name in words + [UNNAMED] * blanks), encoding="utf-8")
    except OSError as error:
        sys.exit(f"Error: cannot write {error.filename or out}: {error.strerror}. Give a path that this user may write to.")
    print(f"{out}: {len(words)} words of {vectors.shape[1]} numbers, and {names}")


if __name__ == "__main__":
    main()
