"""The losses of the network's heads."""

import torch

from az_mpi.network.resnet import ResNet


def losses(network: ResNet, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return {head: its loss} in the heads' order: weighted sums over the positions, scalars, 0 for an empty batch.

    Sums, not means, so that the losses of the parts of a global batch add up to its loss, however it is split.
    batch: float tensors by name: planes [B, C, H, W], weight [B], and each head's target [B, …].
    """
    outputs = network(batch["planes"])
    targets = {name: batch[name if head.target_dtype is not None else "policy"] for name, head in network.heads.items()}
    return {
        name: torch.dot(batch["weight"], head.loss(outputs[name], targets[name]))
        for name, head in network.heads.items()
    }
