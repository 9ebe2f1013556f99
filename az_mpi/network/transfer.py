"""Weights of one network for another one of the same game: another board size, more blocks, more channels.

A tensor of equal shape is taken. A tower may get more blocks, which begin as the identity, and more channels: what
reads them into the old ones begins at 0, so that the network computes the same (Chen, Goodfellow, Shlens 2016,
"Net2Net"). The layers of a head are taken up to the first one that does not fit, since the next ones read from it; a
block is taken whole or not at all.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch

Tensors = dict[str, torch.Tensor]  # by name
_PART = re.compile(r"tower\.\d+|heads\.\w+|\w+")
# These may read the means, then the maxima, of channels: of those that a block pools, and of the tower.
_OF_POOLED, _OF_TOWER = re.compile(r"tower\.\d+\.bias\.weight"), re.compile(r"heads\.\w+\.hidden\.weight")


class Transfer(NamedTuple):
    """Weights for a network. taken, widened, new: the names of its layers whose weights are the other network's,
    contain these, or are as they were drawn."""

    tensors: Tensors
    taken: list[str]
    widened: list[str]
    new: list[str]


def transfer(theirs: Mapping[str, torch.Tensor], ours: Mapping[str, torch.Tensor], same_board: bool) -> Transfer:
    """Return the weights for a network whose new weights are `ours`, with what it can take of `theirs`.

    same_board: whether both see the same board and have the same actions: only then may tensors differ in shape."""
    found = Transfer(dict(ours), [], [], [])
    parts: dict[str, list[str]] = {}
    for name in ours:
        parts.setdefault(_PART.match(name)[0], []).append(name)  # type: ignore[index]
    for part, names in parts.items():
        fitting = {name: _fitted(name, theirs, ours, same_board) for name in names}
        whole = part.startswith("tower.")
        end = next((k for k, name in enumerate(names) if fitting[name] is None), len(names))
        layers = [name.rpartition(".")[0] for name in names]
        if end < len(names):  # not the weight without the bias
            end = 0 if whole else layers.index(layers[end])
        for k, name in enumerate(names):
            if k >= end:
                _add(found.new, layers[k])
                continue
            found.tensors[name] = fitting[name]
            _add(found.taken if ours[name].shape == theirs[name].shape else found.widened, layers[k])
    return found._replace(taken=[layer for layer in found.taken if layer not in found.widened])


def _add(names, layer):
    if layer not in names:
        names.append(layer)


def _fitted(name, theirs, ours, same_board):
    """Return a tensor of the shape of the one in `ours` with the numbers of that in `theirs`; None if it cannot be."""
    is_pooled = _reads_pooled(name, theirs, ours)
    theirs, ours = theirs.get(name), ours[name]
    if theirs is None or theirs.dim() != ours.dim() or theirs.dtype != ours.dtype:
        return None
    if theirs.shape == ours.shape:
        return theirs.clone()
    if not same_board or any(a > b for a, b in zip(theirs.shape, ours.shape)) or theirs.shape[2:] != ours.shape[2:]:
        return None
    if name.startswith("stem") and theirs.dim() > 1 and theirs.shape[1] != ours.shape[1]:
        return None  # of other planes, in an unknown order
    grown, num = ours.clone(), theirs.shape[0]
    if theirs.dim() == 1:
        grown[:num] = theirs
        return grown
    columns = torch.arange(theirs.shape[1])
    if is_pooled:
        half = theirs.shape[1] // 2
        columns = torch.cat([torch.arange(half), ours.shape[1] // 2 + torch.arange(half)])
    grown[:num] = 0  # what was there reads nothing of what is new
    grown[:num, columns] = theirs
    return grown


def _reads_pooled(name, theirs, ours):
    """Return whether a layer reads the means, then the maxima, of channels."""
    if not _OF_TOWER.fullmatch(name):
        return bool(_OF_POOLED.fullmatch(name))
    pairs = [(tensors.get(name), tensors.get("stem.weight")) for tensors in (theirs, ours)]
    return all(
        layer is not None and stem is not None and layer.shape[1:] == (2 * stem.shape[0],) for layer, stem in pairs
    )
