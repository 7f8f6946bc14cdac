"""sick_amp.py MODE TRACE: trains in FP16 on the CPU and writes what torch's profiler recorded of twelve
steps. MODE: "scaled" is as it should be; "unscaled" has a scaler that does nothing; "overflow" throws
steps away; "island" computes its largest product in FP32.
"""
import sys

import torch
from torch import nn

mode, path = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(96, 96), nn.Linear(96, 384)

    def forward(self, x):
        x = torch.relu(self.body(x))
        if mode != "island":
            return self.head(x)
        with torch.autocast("cpu", enabled=False):
            return self.head(x.float())


model = Wide()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scale = 2.0**60 if mode == "overflow" else 2.0**10  # all twelve halvings of it overflow, too
scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=mode != "unscaled")
x, y = torch.randn(256, 96), torch.randn(256, 384)


def step():
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(x)
    scaler.scale(nn.functional.mse_loss(output.float(), y)).backward()
    scaler.step(optimizer)
    scaler.update()


step()
with torch.profiler.profile(record_shapes=True) as profiler:
    for number in range(12):
        with torch.profiler.record_function("ProfilerStep#%d" % number):
            step()
profiler.export_chrome_trace(path)
