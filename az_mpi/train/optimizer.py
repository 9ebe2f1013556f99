"""The optimiser: torch's AdamW without torch's compiler."""

import inspect

import torch


class AdamW(torch.optim.AdamW):
    """Decoupled weight decay (Loshchilov and Hutter 2019), as torch has it, run as it stands.

    torch wraps these methods for its compiler and imports that, a thousand files and more than a second of each rank's
    start, when the first of them is called. Nothing here is compiled.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
