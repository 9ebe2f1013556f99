"""The loss of AlphaZero (Silver et al. 2018): l = (z - v)^2 - pi^T log p; weight decay is the optimiser's.

Shapes: B batch, A actions.
"""

import torch
from torch.nn import functional as F

HEADS = ("policy", "value")  # of the network, in the order of their losses


def losses(network, planes, policy, value, weight):
    """Return {head: loss} in the order of HEADS, summed over the batch with the positions' weights; 0 if it is empty.

    Sums, not means: the parts of a global batch on several ranks then add up to it exactly, however it is split.
    planes float [B, C, H, W]; policy float32 [B, A]; value, weight float32 [B].
    """
    logits, predicted = network(planes)
    cross_entropy = -(policy * F.log_softmax(logits.float(), dim=1)).sum(dim=1)
    squared_error = (predicted.float() - value) ** 2
    return {"policy": torch.dot(weight, cross_entropy), "value": torch.dot(weight, squared_error)}
