"""Inference with PyTorch: bf16 where the processor or the GPU has it, else fp32."""

import copy

import torch

PAD = 8  # batches are filled up to a multiple of this


def has_bf16(device):
    """Return whether a torch device multiplies bf16 in hardware; a processor does with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


class TorchEngine:
    """Evaluate planes with a network on one device. `describe` says which precision was chosen and why."""

    def __init__(self, network, device):
        self.device = torch.device(device)
        bf16 = has_bf16(self.device)
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.describe = f"torch {self.device.type} {'bf16' if bf16 else 'fp32 (no bf16 instructions here)'}"
        self.network = copy.deepcopy(network).to(self.device, self.dtype, memory_format=torch.channels_last).eval()

    def load(self, network):
        """Take over the weights of `network`."""
        self.network.load_state_dict(network.state_dict())

    @torch.inference_mode()
    def evaluate(self, planes):
        """Return (logits float32 [B, A], value float32 [B]) of planes uint8 [B, C, H, W]."""
        n = len(planes)
        # Kernels are made and kept for each batch size: a few sizes, not hundreds.
        x = torch.zeros((-(-n // PAD) * PAD, *planes.shape[1:]), dtype=self.dtype)
        x[:n] = torch.from_numpy(planes)
        x = x.to(self.device).contiguous(memory_format=torch.channels_last)
        logits, value = self.network(x)
        return logits[:n].float().cpu().numpy(), value[:n].float().cpu().numpy()
