"""knob_scaler.py MODE HOW: trains in f16 on the CPU and prints losses, norms of gradients and bits. HOW:
"hand" is the loop of torch's documentation, with its GradScaler; "plain" knows nothing of f16 or scales,
and with Ridge's knob has to come to the same bits. MODE: "steps", "clipped", "added" (of three batches),
"overflow" (its first gradients are infinite), "value" (its own clipping, which reads gradients), and
what the knob refuses.
"""
import hashlib
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

mode, how = sys.argv[1:]  # and "probe": what the knob is offered on a CPU, and on GPUs that are made up
by_hand = how == "hand"
torch.manual_seed(0)
torch.set_num_threads(1)
STEPS = 8
PARTS = 3 if mode == "added" else 1
# Losses so large that the first scales overflow.
FACTOR = 2000.0 if mode == "overflow" else 1.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(24, 64), nn.Linear(64, 8)
        self.extra = nn.Linear(8, 8) if mode == "unowned" else nn.Identity()

    def forward(self, x):
        if mode == "checkpointed":
            x = checkpoint(lambda x: torch.relu(self.body(x)), x.requires_grad_(), use_reentrant=True)
            return self.head(x)
        return self.extra(self.head(torch.relu(self.body(x))))


model = Model()
trained = [p for name, p in model.named_parameters() if not name.startswith("extra")]
optimizer = torch.optim.AdamW(trained, lr=0.01)
other = torch.optim.SGD([nn.Parameter(torch.ones(()))], lr=0.1) if mode == "two" else None
if mode == "hook":
    model.body.weight.register_hook(lambda gradient: gradient)
if mode == "scaler":
    torch.amp.GradScaler("cpu")
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=by_hand)
data = torch.Generator().manual_seed(1)


def loss_of(x, y):
    if by_hand:
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(x)
        output = output.float()
    else:
        output = model(x)
    return nn.functional.mse_loss(output, y) * FACTOR / PARTS


def clip():
    if mode in ("clipped", "value"):
        scaler.unscale_(optimizer)
    if mode == "clipped":
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        print("norm", repr(norm.item()))
    elif mode == "value":
        for parameter in trained:
            parameter.grad.clamp_(-0.002, 0.002)


for _ in range(STEPS):
    optimizer.zero_grad()
    for _ in range(PARTS):
        x, y = torch.randn(16, 24, generator=data), torch.randn(16, 8, generator=data)
        loss = loss_of(x, y)
        print("loss", repr(loss.item()))
        scaled = scaler.scale(loss)
        if mode == "gradients":
            torch.autograd.grad(loss, trained[0], retain_graph=True)
        scaled.backward(create_graph=mode == "second")
    clip()
    if mode == "closure":
        optimizer.step(lambda: loss)
    else:
        scaler.step(optimizer)
    scaler.update()

def told(name, capability):
    """What a probe offers on such a device; 0: the CPU."""
    shim = sys.modules["ridge_shim"]._shim
    knobs = {file.__name__: file for file in next(each for each in shim.parts if hasattr(each, "files")).files}["ridge_knob_model"]
    own, torch.cuda.get_device_capability = knobs.device_of, lambda: (capability, 0)
    knobs.device_of = lambda _: "cuda" if capability else "cpu"
    knobs.cpu_multiplies_bf16 = lambda: True
    for offer in knobs.Autocast.offers(shim, optimizer):
        print("offer", name, offer["value"] or "refused: " + offer["refusal"])
    knobs.device_of = own


if how == "probe":
    for number in (0, 6, 7, 8):
        told(number, number)
bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("bits", hashlib.sha1(bits).hexdigest())
print("keys", sorted(optimizer.state_dict()["state"][0]))
