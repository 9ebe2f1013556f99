"""A network for a GPU whose convolutions also add the bias and the skip connection and take the ReLU: one operation of
cuDNN in place of two or three that each read and write all numbers."""

import operator

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F


def fused(network: nn.Module, example: torch.Tensor) -> nn.Module:
    """Return a module that computes what `network` computes, with the very same weights.

    relu(conv(x)) and relu(z + conv(x)) become one operation each. Nothing else changes. A network for which this is not
    possible, such as one with a head of the user's that branches on values, is returned as it is.

    network: on a GPU. example: float planes [B, C, H, W], B at least 2, on that GPU, of the type of the weights."""
    try:
        traced = fx.symbolic_trace(network)
        ShapeProp(traced).propagate(example)
        for relu in traced.graph.find_nodes(op="call_function", target=F.relu):
            _fuse(traced, relu)
        traced.recompile()
        traced(example)
    except Exception:  # fx hands placeholders to the user's code, which may raise anything; cuDNN may lack an operation
        return network
    return traced


def _fuse(traced, relu):
    """Let the convolution before this ReLU take it, if there is one."""
    done = [relu]
    before = relu.args[0]
    skipped = None
    if before.target in (operator.add, torch.add) and len(before.users) == 1 and _alike(before):
        done.append(before)
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
    for node in (*done, before):  # others may change a value in place, though nothing reads their result
        traced.graph.erase_node(node)


def _alike(add):
    """Return whether a sum is of two arrays of one shape and type, and nothing else: cuDNN does not broadcast."""
    found = [one.meta.get("tensor_meta") if isinstance(one, fx.Node) else None for one in add.args]
    return (
        len(found) == 2
        and not add.kwargs
        and None not in found
        and found[0].shape == found[1].shape
        and found[0].dtype == found[1].dtype
    )


def _convolution(traced, node):
    """Return the layer of a node if it is a plain convolution with a bias whose result one node reads, else None."""
    layer = traced.get_submodule(node.target) if node.op == "call_module" and len(node.users) == 1 else None
    plain = type(layer) is nn.Conv2d and layer.bias is not None and layer.groups == 1
    hooked = plain and (layer._forward_hooks or layer._forward_pre_hooks)  # such as torch's old weight_norm
    return layer if plain and not hooked and layer.padding_mode == "zeros" and layer.padding != "same" else None
