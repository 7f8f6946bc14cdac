"""A recurrent network written out as a loop over its time steps."""

import torch
from torch import nn

import program


class Recurrent(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, hidden)
        self.from_state = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, sequence):
        state = torch.zeros(sequence.shape[0], self.hidden)
        for t in range(sequence.shape[1]):
            update = torch.tanh(self.from_input(sequence[:, t]) + self.from_state(state))
            state = 0.5 * state + 0.5 * update
        return self.output(state)


given = program.arguments(steps=800)
torch.manual_seed(10)
sequences = torch.randn(1024, 96, 8)
labels = torch.randint(0, 4, (1024,))
model = Recurrent(8, 32, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for step in program.counted(given):
    at = step % 32 * 32
    loss = criterion(model(sequences[at:at + 32]), labels[at:at + 32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.tell(model, loss.detach())
