"""The optimiser: torch's AdamW without torch's compiler."""

import inspect

import torch


class AdamW(torch.optim.AdamW):
    """torch's AdamW (decoupled weight decay: Loshchilov and Hutter 2019), uncompiled.

    torch wraps these methods for its compiler. The first call imports the compiler, a thousand files, which takes each
    rank more than a second; it is not used here.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
