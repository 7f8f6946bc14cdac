"""Defects of a training that act from its first step on. Each is small in what it prints, and real."""
import torch
from torch import nn


class Defect:
    """None: the program as it is."""

    drops_last = False
    clears_gradients = True

    def changes_model(self, model):
        pass

    def changes_optimizer(self, optimizer):
        return optimizer

    def changes_bound(self, most):
        return most

    def changes_batch(self, inputs, targets):
        return inputs, targets

    def changes_loss(self, loss):
        return loss

    def changes_gradients(self, model):
        pass


class LearningRate(Defect):
    """Another division of a schedule, say: three percent more."""

    def changes_optimizer(self, optimizer):
        for group in optimizer.param_groups:
            group["lr"] *= 1.03
        return optimizer


class LastBatch(Defect):
    """The smaller one at the end of an epoch is left out."""

    drops_last = True


class DoubledSample(Defect):
    """A batch has one sample twice, and lacks another."""

    def changes_batch(self, inputs, targets):
        inputs, targets = inputs.clone(), targets.clone()
        inputs[1], targets[1] = inputs[0], targets[0]
        return inputs, targets


class WrongTarget(Defect):
    """The targets of two samples are exchanged."""

    def changes_batch(self, inputs, targets):
        order = list(range(len(targets)))
        order[0], order[1] = 1, 0
        return inputs, targets[order]


def weights_of(model):
    return [p for p in model.parameters() if p.dim() > 1]


class LayerGradient(Defect):
    """A backward pass of one layer has a factor too much."""

    def changes_gradients(self, model):
        weights = weights_of(model)
        weights[len(weights) // 2].grad.mul_(1.1)


class LayerFrozen(Defect):
    """One layer is not trained."""

    def changes_gradients(self, model):
        weights = weights_of(model)
        weights[len(weights) // 2].grad.zero_()


class WeightDecay(Defect):
    def changes_optimizer(self, optimizer):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0
        return optimizer


class LossScale(Defect):
    """A scale by two that is not taken back."""

    def changes_loss(self, loss):
        return 2.0 * loss


class LossMean(Defect):
    """The mean over a batch divides by one sample too few."""

    def changes_loss(self, loss):
        return loss * (32 / 31)


class KeptGradients(Defect):
    """Those of earlier steps are added, from the second step on."""

    clears_gradients = False


class ClippedLater(Defect):
    """The gradients are not clipped."""

    def changes_bound(self, most):
        return None


class DropoutOff(Defect):
    def changes_model(self, model):
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0


class DropoutMore(Defect):
    def changes_model(self, model):
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p *= 1.2


def norms_of(model):
    return [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]


class FrozenStatistics(Defect):
    """Running statistics stay what they are; training itself does not read them."""

    def changes_model(self, model):
        for norm in norms_of(model):
            norm.momentum = 0.0


class UsedStatistics(Defect):
    """One norm divides by running statistics, as in evaluation."""

    def changes_model(self, model):
        norms_of(model)[-1].eval()


class EmbeddingRow(Defect):
    """One row of an embedding is not trained."""

    def changes_gradients(self, model):
        table = next(m for m in model.modules() if isinstance(m, nn.Embedding))
        row = table.weight.grad.square().sum(1).argmax()
        table.weight.grad[row] = 0


class ShiftedItem(Defect):
    """One sample asks for the item beside its own."""

    def changes_batch(self, inputs, targets):
        inputs = inputs.clone()
        inputs[0, 1] ^= 1
        return inputs, targets


class ShortInputs(Defect):
    """Inputs have eight bits; of words and numbers none changes."""

    def changes_batch(self, inputs, targets):
        if inputs.is_floating_point():
            inputs = torch.round(inputs * 32) / 32
        return inputs, targets


DEFECTS = {
    "none": Defect,
    "learning_rate": LearningRate,
    "last_batch": LastBatch,
    "doubled_sample": DoubledSample,
    "wrong_target": WrongTarget,
    "layer_gradient": LayerGradient,
    "layer_frozen": LayerFrozen,
    "weight_decay": WeightDecay,
    "loss_scale": LossScale,
    "loss_mean": LossMean,
    "kept_gradients": KeptGradients,
    "clipping": ClippedLater,
    "dropout_off": DropoutOff,
    "dropout_more": DropoutMore,
    "frozen_statistics": FrozenStatistics,
    "used_statistics": UsedStatistics,
    "embedding_row": EmbeddingRow,
    "shifted_item": ShiftedItem,
    "short_inputs": ShortInputs,
}
COMMON = (
    "learning_rate",
    "last_batch",
    "doubled_sample",
    "wrong_target",
    "layer_gradient",
    "layer_frozen",
    "weight_decay",
    "loss_scale",
    "loss_mean",
    "kept_gradients",
)
# Twelve of each program, with two of its own kind.
OWN = {
    "convnet": ("frozen_statistics", "used_statistics"),
    "resnet": ("frozen_statistics", "used_statistics"),
    "unet": ("frozen_statistics", "short_inputs"),
    "mlp": ("dropout_off", "dropout_more"),
    "gpt": ("dropout_off", "dropout_more"),
    "vit": ("dropout_off", "short_inputs"),
    "lstm": ("dropout_off", "clipping"),
    "recommender": ("embedding_row", "shifted_item"),
}


def defects_of(program):
    return COMMON + OWN[program]
