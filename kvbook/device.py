"""What a device can calculate with. Storing and casting work everywhere; arithmetic does not.

NVIDIA's GPUs calculate in bfloat16 from compute capability 8.0 on and in fp8 from 8.9 on (CUDA C++
Programming Guide, "Compute Capabilities"). Colab's free T4 has 7.5. So a lesson may keep a cache in
bfloat16 or fp8 on any device, but what multiplies or adds asks here, or uses float32.
"""

import torch

BFLOAT16_FROM = (8, 0)


def half(device: str | torch.device) -> torch.dtype:
    """The float of 2 bytes to use on a device: bfloat16, or float16 on a GPU without bfloat16.

    A CPU has bfloat16; PyTorch supplies what its processor lacks. Raises RuntimeError, PyTorch's own,
    for a GPU that is not there.
    """
    device = torch.device(device)
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < BFLOAT16_FROM:
        return torch.float16
    return torch.bfloat16
