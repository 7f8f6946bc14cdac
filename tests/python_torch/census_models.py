"""Models of all kinds, in small configurations without dropout, and data for them."""

import math

import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn
from torchvision import models as vision


def _picture_model(build, size=64, batch=4):
    return lambda: (_without_dropout(build()), {"x": torch.randn(batch, 3, size, size)})


def _without_dropout(model):
    for module in model.modules():
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    return model


def _resnet():
    return vision.resnet.ResNet(vision.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)


def _mobilenet_v2():
    blocks = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2], [6, 64, 1, 2]]
    return vision.MobileNetV2(num_classes=10, width_mult=0.5, inverted_residual_setting=blocks)


def _efficientnet():
    blocks = [(1, 3, 1, 16, 8, 1), (6, 3, 2, 8, 16, 2), (6, 5, 2, 16, 24, 2)]
    return vision.EfficientNet([vision.efficientnet.MBConvConfig(*block) for block in blocks], 0.0, num_classes=10)


def _convnext():
    blocks = [vision.convnext.CNBlockConfig(*block) for block in ((16, 32, 1), (32, 64, 2), (64, None, 1))]
    return vision.ConvNeXt(blocks, layer_scale=0.3, num_classes=10)


def _regnet():
    blocks = vision.regnet.BlockParams.from_init_params(depth=6, w_0=16, w_a=12, w_m=2, group_width=8, se_ratio=0.25)
    return vision.RegNet(blocks, num_classes=10, stem_width=16)


def _swin():
    return vision.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)


class _Keyword(nn.Module):
    """A module of one argument, by the name `x`."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def _vit():
    model = vision.VisionTransformer(32, 8, 3, 4, 64, 128, num_classes=10)
    nn.init.normal_(model.heads.head.weight, std=0.1)  # it begins as zeros
    return _Keyword(model)


def _ids(batch=2, length=12, words=100):
    return torch.randint(2, words, (batch, length))


_SMALL = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip


def _bert():
    config = transformers.BertConfig(**_SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ids = _ids()
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return transformers.BertForMaskedLM(config), {"input_ids": ids, "attention_mask": mask, "labels": ids}


def _causal(model):
    ids = _ids()
    return model, {"input_ids": ids, "labels": ids}


def _gpt2():
    config = transformers.GPT2Config(
        vocab_size=100, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=1, use_cache=False,
    )  # fmt: skip
    return _causal(transformers.GPT2LMHeadModel(config))


def _llama():
    config = transformers.LlamaConfig(**_SMALL, num_key_value_heads=2, use_cache=False)
    return _causal(transformers.LlamaForCausalLM(config))


def _qwen3():
    config = transformers.Qwen3Config(**_SMALL, num_key_value_heads=2, head_dim=8, use_cache=False)
    return _causal(transformers.Qwen3ForCausalLM(config))


def _t5():
    config = transformers.T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config), {"input_ids": _ids(), "labels": _ids(length=7)}


def _whisper():
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=16,
        max_source_positions=30, dropout=0.0,
    )  # fmt: skip
    return WhisperEncoder(config), {"input_features": torch.randn(2, 16, 60)}


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(50, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, 50)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0])


def _convolutions(before, width):
    return nn.Sequential(
        nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Down by pooling, up by a transposed convolution and by bilinear interpolation."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([_convolutions(3, 8), _convolutions(8, 16), _convolutions(16, 32)])
        self.up = nn.ModuleList([
            nn.ConvTranspose2d(32, 16, 2, stride=2),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 8, 1)),
        ])  # fmt: skip
        self.join = nn.ModuleList([_convolutions(32, 16), _convolutions(16, 8)])
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


class Recommender(nn.Module):
    """As in DLRM: bags of categories, products of all pairs of vectors, a perceptron before and behind."""

    def __init__(self, tables=5, rows=40, width=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables - 1))
        self.last = nn.Embedding(rows, width)
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.pairs = [(i, j) for i in range(tables + 1) for j in range(i)]
        self.top = nn.Sequential(nn.Linear(width + len(self.pairs), 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, numbers, categories):
        first = self.bottom(numbers)
        bags = [table(ids) for table, ids in zip(self.tables, categories.unbind(1))]
        vectors = torch.stack([first, *bags, self.last(categories[:, -1, 0])], 1)
        products = vectors @ vectors.transpose(1, 2)
        rows, columns = ([pair[i] for pair in self.pairs] for i in (0, 1))
        return self.top(torch.cat([first, products[:, rows, columns]], 1))


class Vae(nn.Module):
    """The noise is drawn in f32 for all, so that the seed decides it."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.ELU(), nn.Flatten(),
            nn.Linear(16 * 16, 2 * 6),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(6, 16 * 16), nn.Softplus(), nn.Unflatten(1, (16, 4, 4)), nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        noise = torch.randn(mean.shape).to(mean.dtype)
        logits = self.decoder(mean + noise * (0.5 * log_variance).exp())
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
        likeness = F.binary_cross_entropy_with_logits(logits, x.sigmoid(), reduction="none").sum((1, 2, 3))
        return (likeness + divergence).mean() / x[0].numel(), logits


class _TimedBlock(nn.Module):
    def __init__(self, before, width, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, before), nn.Conv2d(before, width, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(time, width)
        self.skip = nn.Conv2d(before, width, 1) if before != width else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class _PictureAttention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        batch, width, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, 3, self.heads, -1, h * w).transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(batch, width, h, w))


class Diffusion(nn.Module):
    """A U-Net of residual blocks that are told the time, with attention at its lowest level."""

    def __init__(self, width=16, time=32):
        super().__init__()
        self.frequencies = time // 2
        self.time = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = _TimedBlock(width, width, time), _TimedBlock(width, 2 * width, time)
        self.smaller = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle, self.attention = _TimedBlock(2 * width, 2 * width, time), _PictureAttention(2 * width)
        self.larger = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up = _TimedBlock(2 * width, width, time)
        self.norm, self.last = nn.GroupNorm(4, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, steps):
        rates = torch.exp(-math.log(10000) * torch.arange(self.frequencies) / self.frequencies)
        angles = (steps[:, None] * rates).to(x.dtype)
        time = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        skip = self.down1(self.first(x), time)
        y = self.attention(self.middle(self.down2(self.smaller(skip), time), time))
        y = self.larger(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(self.up(torch.cat([y, skip], 1), time))))


MODELS = {
    "resnet": _picture_model(_resnet, 32, 8),
    "mobilenet_v2": _picture_model(_mobilenet_v2, 32),
    "efficientnet": _picture_model(_efficientnet),
    "convnext": _picture_model(_convnext),
    "densenet": _picture_model(lambda: vision.DenseNet(8, (2, 2, 2, 2), 16, num_classes=10)),
    "shufflenet_v2": _picture_model(lambda: vision.ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 128], num_classes=10)),
    "regnet_y": _picture_model(_regnet),
    "vit": _picture_model(_vit, 32),
    "swin": _picture_model(_swin, 32),
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "qwen3": _qwen3,
    "lstm": lambda: (Lstm(), {"x": _ids(3, 9, 50)}),
    "unet": lambda: (UNet(), {"x": torch.randn(2, 3, 24, 24)}),
    "t5": _t5,
    "whisper_encoder": _whisper,
    "recommender": lambda: (
        Recommender(),
        {"numbers": torch.randn(6, 13), "categories": torch.randint(0, 40, (6, 5, 3))},
    ),
    "vae": lambda: (Vae(), {"x": torch.randn(4, 1, 16, 16)}),
    "diffusion_unet": lambda: (
        Diffusion(),
        {"x": torch.randn(2, 3, 16, 16), "steps": torch.tensor([3.0, 700.0])},
    ),
}
