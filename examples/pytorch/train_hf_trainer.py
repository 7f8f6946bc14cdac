"""Trains a small GPT-2 on the sources of Python's standard library with Hugging Face's Trainer.

The model is made from its configuration; nothing is fetched.

Usage: train_hf_trainer.py [--steps 1000] [--out hf_trainer]
"""

import argparse
import pathlib
import sysconfig

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Text(Dataset):
    """Stretches of bytes."""

    def __init__(self, length):
        folder = pathlib.Path(sysconfig.get_path("stdlib"))
        self.text = b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))[:2_000_000]
        self.length = length

    def __len__(self):
        return len(self.text) // self.length

    def __getitem__(self, index):
        tokens = list(self.text[index * self.length:(index + 1) * self.length])
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(tokens)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", default="hf_trainer")
    options = parser.parse_args()
    set_seed(0)

    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=256, n_positions=64, n_embd=96, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0,
    ))
    arguments = TrainingArguments(
        output_dir=options.out, max_steps=options.steps, per_device_train_batch_size=options.batch,
        learning_rate=1e-3, logging_steps=50, save_strategy="no", report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Text(64))
    trainer.train()
    trainer.save_model(options.out)


if __name__ == "__main__":
    main()
