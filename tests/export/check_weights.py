"""Loads FOLDER/own.safetensors, which Ridge wrote, into another library's model (that of transformers
which config.json names, which Ridge wrote, too) and compares its logits for x.npy with own.npy; then writes weights and logits of another such model: theirs.safetensors
and theirs.npy.

Usage: check_weights.py FOLDER gpt2|huggingface|torchvision
"""

import json
import os
import pathlib
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

TOLERANCE = 1e-5  # of the largest result, that of a network of many layers ten times that
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(1)


def gpt2():
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=11, n_positions=12, n_embd=16, n_layer=2, n_head=2)
    return AutoModelForCausalLM, GPT2LMHeadModel(config)


def huggingface():
    from transformers import AutoModelForImageClassification, ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=4,
    )
    return AutoModelForImageClassification, ResNetForImageClassification(config)


def from_pretrained(auto, theirs):
    """The model of own.safetensors, in which nothing may be missing or left over."""
    place = folder / "pretrained"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copy(folder / "config.json", place)
    shutil.copy(folder / "own.safetensors", place / "model.safetensors")
    model, found = auto.from_pretrained(place, output_loading_info=True)
    assert type(model) is type(theirs), model
    assert model.dtype == torch.float32, model.dtype
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), found
    return model.eval()


def randomize_statistics(model):
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


def torchvision_models():
    from torchvision.models import resnet18

    model = resnet18(num_classes=4).eval()
    model.load_state_dict(safetensors.torch.load_file(folder / "own.safetensors"), strict=True)
    return model, resnet18(num_classes=4).eval(), lambda model, x: model(x)


x = torch.from_numpy(numpy.load(folder / "x.npy"))
if x.ndim == 4:
    x = x.permute(0, 3, 1, 2)
if sys.argv[2] == "torchvision":
    own, theirs, logits = torchvision_models()
else:
    auto, theirs = globals()[sys.argv[2]]()
    own, theirs = from_pretrained(auto, theirs), theirs.eval()

    def logits(model, x):
        return model(x).logits
with torch.no_grad():
    wanted = numpy.load(folder / "own.npy")
    error = numpy.abs(logits(own, x).numpy() - wanted).max() / numpy.abs(wanted).max()
    limit = TOLERANCE if sys.argv[2] == "gpt2" else 10 * TOLERANCE
    assert error <= limit, f"off by {error}"
    randomize_statistics(theirs)
    numpy.save(folder / "theirs.npy", logits(theirs, x).numpy())
if sys.argv[2] == "torchvision":
    safetensors.torch.save_file(theirs.state_dict(), folder / "theirs.safetensors")
else:
    theirs.save_pretrained(folder / "saved")
    shutil.copy(folder / "saved/model.safetensors", folder / "theirs.safetensors")
