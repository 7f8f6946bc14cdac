"""The threads and the GPU that torch computes with, and what it has taken of the memory of GPUs."""


def facts(torch):
    cuda = torch.cuda
    found = {
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "has_cuda": bool(cuda.is_initialized()),
    }
    try:
        if found["has_cuda"]:
            uuid = getattr(cuda.get_device_properties(cuda.current_device()), "uuid", "")
            found["gpu"] = "GPU-%s" % uuid if uuid else ""  # as the driver names it
            every = range(cuda.device_count())
            found["gpu_peak_bytes"] = sum(map(cuda.max_memory_reserved, every))
    except Exception:  # all else is worth writing without it
        pass
    return found
