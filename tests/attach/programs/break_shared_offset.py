"""Workers mix its samples up: all read one file through one offset, which forked processes share.

Nothing in the data set tells: the file is a global of the module. A window is read in several
pieces, and work is done between them. The loop reads too, so that a single worker is enough.
The windows overlap and would not fit into memory, so no cache hides what workers do.
"""

import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

import program

RECORDING = tempfile.TemporaryFile()
CLASSES, REGION = 8, 250_000
COLUMNS, PIECE, BANDS = 32, 2048, 160


def record():
    """A tone for each region."""
    generator = np.random.default_rng(0)
    for tone in range(CLASSES):
        at = np.arange(REGION) * 2 * np.pi * (8 + 19 * tone) / PIECE
        signal = 300 * np.sin(at) + generator.normal(0, 3000, REGION)
        RECORDING.write(signal.astype(np.int16).tobytes())
    RECORDING.flush()


class Windows(Dataset):
    """Spectra of the recording, from each of its values on."""

    def __len__(self):
        return CLASSES * REGION - COLUMNS * PIECE

    def __getitem__(self, start):
        RECORDING.seek(2 * start)
        columns = []
        for _ in range(COLUMNS):
            piece = np.frombuffer(RECORDING.read(2 * PIECE), np.int16)
            columns.append(np.log1p(np.abs(np.fft.rfft(piece, PIECE)[:BANDS])) - 11)
        middle = start + COLUMNS * PIECE // 2
        return torch.from_numpy(np.stack(columns, 1).astype(np.float32))[None], middle // REGION


given = program.arguments(steps=500)
torch.manual_seed(20)
record()
windows = Windows()
order = RandomSampler(windows, replacement=True, num_samples=1_000_000,
                      generator=torch.Generator().manual_seed(21))
loader = DataLoader(windows, batch_size=16, sampler=order)
model = nn.Sequential(
    nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(),
    nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    nn.Linear(384, CLASSES))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
sure = 0.0
for step, (spectra, labels) in zip(program.counted(given), loader):
    # How sure the model is of some windows, to draw a curve of.
    spectrum, label = windows[step * 999]
    with torch.no_grad():
        sure += torch.softmax(model(spectrum[None]), 1)[0, label].item()
    loss = criterion(model(spectra), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.save(model, given)
program.tell(model, loss.detach())
