"""The losses of the network's heads."""

import torch


def losses(network, batch):
    """Return {head: its loss} in the heads' order, summed over the batch with the positions' weights; 0 if it is empty.

    Sums, not means: the parts of a global batch on several ranks then add up to it exactly, however it is split.
    batch: float tensors by name: planes [B, C, H, W], weight [B], and each head's target [B, …].
    """
    outputs = network(batch["planes"])
    return {name: torch.dot(batch["weight"], head.loss(outputs[name], batch[name]))
            for name, head in network.heads.items()}  # fmt: skip
