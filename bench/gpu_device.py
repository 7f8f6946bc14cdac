"""What NVIDIA's driver says of the GPU, asked as Ridge asks it: nothing has to be installed for that.

RIDGE_CUDA_DRIVER names another driver than the loader's libcuda.so.1.
"""

import ctypes
import os
import pathlib
import re
import subprocess

MAJOR, MINOR, MULTIPROCESSORS = 75, 76, 16  # of cuDeviceGetAttribute


class NoGpu(Exception):
    """Why there is none, and one thing to do about it."""


def open_driver():
    name = os.environ.get("RIDGE_CUDA_DRIVER") or "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise NoGpu(
            f"no NVIDIA driver was found: cannot open '{name}' ({reason}); run this on a machine"
            " with a GPU, or give the path of its libcuda.so.1 in RIDGE_CUDA_DRIVER"
        ) from error


def call(driver, function, *arguments):
    try:
        code = getattr(driver, function)(*arguments)
    except AttributeError as error:
        raise NoGpu(f"the NVIDIA driver has no function {function}; update it") from error
    if code != 0:
        text = ctypes.c_char_p()
        if driver.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value:
            reason = text.value.decode("utf-8", "replace")
        else:
            reason = f"error {code}"
        raise NoGpu(f"{function} failed: {reason}; look whether nvidia-smi sees the GPU")


def number_from(driver, function, *arguments, kind=ctypes.c_int):
    value = kind()
    call(driver, function, ctypes.byref(value), *arguments)
    return value.value


def driver_release():
    """"580.65.06"; none where neither the kernel's module nor nvidia-smi tells."""
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        try:
            words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            text = subprocess.run(words, capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.TimeoutExpired):
            text = ""
    found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return found[0] if found else None


def find_gpu():
    """The GPU that `--device cuda` takes. NoGpu where there is none."""
    driver = open_driver()
    call(driver, "cuInit", 0)
    version = number_from(driver, "cuDriverGetVersion")
    if number_from(driver, "cuDeviceGetCount") < 1:
        raise NoGpu("the NVIDIA driver sees no GPU; look whether nvidia-smi does")
    device = number_from(driver, "cuDeviceGet", 0)
    name = ctypes.create_string_buffer(256)
    call(driver, "cuDeviceGetName", name, len(name), device)

    def attribute(which):
        return number_from(driver, "cuDeviceGetAttribute", which, device)

    return {
        "name": name.value.decode("utf-8", "replace").strip() or "GPU without a name",
        "memory_bytes": number_from(driver, "cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t),
        "capability": f"{attribute(MAJOR)}.{attribute(MINOR)}",
        "multiprocessors": attribute(MULTIPROCESSORS),
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
        "driver": driver_release(),
    }


def machine():
    """The rest of the machine, without its name."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M)
    return {
        "cpu": cpu[1] if cpu else "unknown",
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory[1]) << 10 if memory else None,
        "kernel": os.uname().release,
    }
