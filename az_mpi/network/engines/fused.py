"""A network for a GPU whose convolutions also add the bias and the skip connection and take the ReLU: one operation of
cuDNN in place of two or three that each read and write all numbers."""

import operator

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F


def fused(network: nn.Module, example: torch.Tensor) -> nn.Module:
    """Return a module that computes what `network` computes, with the very same weights.

    relu(conv(x)) and relu(z + conv(x)) become one operation each. Nothing else changes; a network that torch.fx cannot
    trace, because a head of the user's branches on values, is returned as it is.

    network: on a GPU. example: float planes [B, C, H, W] on that GPU, of the type of the weights."""
    try:
        traced = fx.symbolic_trace(network)
    except Exception:  # fx hands placeholders to the user's code, which may raise anything
        return network
    ShapeProp(traced).propagate(example)
    for relu in traced.graph.find_nodes(op="call_function", target=F.relu):
        _fuse(traced, relu)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _fuse(traced, relu):
    """Let the convolution before this ReLU take it, if there is one."""
    before, skipped = relu.args[0], None
    if before.target in (operator.add, torch.add) and len(before.users) == 1 and _same_shape(*before.args):
        before, skipped = sorted(before.args, key=lambda one: _convolution(traced, one) is None)
    if not (layer := _convolution(traced, before)):
        return
    how = layer.stride, layer.padding, layer.dilation, layer.groups
    with traced.graph.inserting_before(relu):
        weight, bias = (traced.graph.get_attr(f"{before.target}.{name}") for name in ("weight", "bias"))
        if skipped is None:
            what = torch.cudnn_convolution_relu, (before.args[0], weight, bias, *how)
        else:
            what = torch.cudnn_convolution_add_relu, (before.args[0], weight, skipped, 1.0, bias, *how)
        made = traced.graph.call_function(*what)
    made.meta = relu.meta
    relu.replace_all_uses_with(made)


def _same_shape(*values):
    """Return whether these are tensors of one shape: cuDNN does not broadcast."""
    return len({value.meta["tensor_meta"].shape if isinstance(value, fx.Node) else None for value in values}) == 1


def _convolution(traced, node):
    """Return the layer of a node, None if it is no convolution with a bias, or if its result has another reader."""
    layer = traced.get_submodule(node.target) if node.op == "call_module" else None
    fits = isinstance(layer, nn.Conv2d) and layer.bias is not None and layer.padding_mode == "zeros"
    return layer if fits and not isinstance(layer.padding, str) and len(node.users) == 1 else None
