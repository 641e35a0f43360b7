"""What a record says about the machine: device, driver, versions. No host names, no paths."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


def device_facts(device: str) -> dict[str, Any]:
    """Type, name and memory in bytes of the device, with the threads that PyTorch uses on a CPU."""
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        return {"type": "cuda", "name": properties.name, "memory_bytes": properties.total_memory}
    return {"type": "cpu", "name": _cpu_name(), "threads": torch.get_num_threads()}


def driver(device: str) -> str | None:
    """The version of the GPU's driver, where nvidia-smi can be asked; None on a CPU."""
    return _nvidia_smi("driver_version") if device == "cuda" else None


def versions(*packages: str) -> dict[str, str | None]:
    """Of Python, PyTorch, its CUDA, the system and the packages named, which must be installed."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "system": f"{platform.system()} {platform.machine()}",
        "libc": "-".join(platform.libc_ver()),
        **{name: metadata.version(name) for name in packages},
    }


def driver_used_nbytes() -> int | None:
    """Bytes in use on the first GPU by the driver's own figure, other processes' included.

    None where neither torch (with its NVML binding) nor nvidia-smi can tell.
    """
    try:
        return int(torch.cuda.device_memory_used(0))
    except Exception:  # no binding, an old torch, a container that hides the driver's library
        text = _nvidia_smi("memory.used")
        return int(text) * 2**20 if text and text.isdecimal() else None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _nvidia_smi(field: str) -> str | None:
    command = ["nvidia-smi", "--id=0", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
