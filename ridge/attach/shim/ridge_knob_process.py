"""Knobs of the process as a whole: threads, CPUs, and how CUDA multiplies and convolves."""
import os
import sys

import ridge_knobs
from ridge_knobs import Knob, offer, refusal

CPU_FOLDER = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
NODE_FOLDER = "/sys/devices/system/node"


def usable_cpus():
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return list(range(os.cpu_count() or 1))


def local_ranks():
    """Processes that share this machine in one training."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        return 1


def cpus_in(text):
    """Of "0-3,8": [0, 1, 2, 3, 8]. ValueError for other text."""
    numbers = set()
    for piece in text.strip().split(","):
        first, _, last = piece.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return sorted(numbers)


def cpus_text(numbers):
    pieces, start = [], 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            first, last = numbers[start], numbers[i - 1]
            pieces.append(str(first) if first == last else "%d-%d" % (first, last))
            start = i
    return ",".join(pieces)


def read_cpus(path):
    try:
        with open(path) as file:
            return cpus_in(file.read())
    except (OSError, ValueError):
        return []


class Cpus(Knob):
    key = "cpus"

    @classmethod
    def offers(cls, shim, marker):
        usable = usable_cpus()
        if local_ranks() > 1:
            return [refusal(cls.key, "several processes of one training share the machine")]
        seen, cores = set(), []
        for number in usable:
            siblings = read_cpus(CPU_FOLDER % number) or [number]
            if not seen.intersection(siblings):
                cores.append(number)
            seen.update(siblings)
        found = []
        if len(cores) < len(usable):
            text = "%d cores run %d threads at once, two of them on one core" % (
                len(cores),
                len(usable),
            )
            found.append(offer(cls.key, cpus_text(cores), text))
        node = sorted(set(cls.first_node()) & set(usable))
        if node and len(node) < len(usable):
            text = "memory is near to %d of %d CPUs only" % (len(node), len(usable))
            found.append(offer(cls.key, cpus_text(node), text))
        if found:
            return found
        return [refusal(cls.key, "its %d CPUs are cores of one node" % len(usable))]

    @staticmethod
    def first_node():
        try:
            names = [name for name in os.listdir(NODE_FOLDER) if name[4:].isdigit()]
        except OSError:
            return []
        nodes = [read_cpus(os.path.join(NODE_FOLDER, name, "cpulist")) for name in sorted(names)]
        nodes = [node for node in nodes if node]
        return nodes[0] if len(nodes) > 1 else []

    def before_torch(self):
        try:
            wanted = cpus_in(str(self.value))
        except ValueError:
            self.refuse("'%s' is no list of CPUs" % self.value)
            return
        missing = sorted(set(wanted) - set(usable_cpus()))
        if missing:
            self.refuse("the process may not use CPU %d" % missing[0])
            return
        # A library that was loaded before has threads of its own by now.
        for thread in os.listdir("/proc/self/task"):
            try:
                os.sched_setaffinity(int(thread), wanted)
            except ProcessLookupError:
                pass
        self.apply("it runs on CPUs %s" % cpus_text(wanted))


class ThreadsKnob(Knob):
    """A number that the program may set too: then the recipe's stays."""

    setter = getter = ""

    def hook_torch(self, torch):
        self.torch, self.original = torch, getattr(torch, self.setter)
        self.original(self.value)
        if getattr(torch, self.getter)() != self.value:
            self.refuse("torch made %d of them" % getattr(torch, self.getter)())
            return
        setattr(torch, self.setter, self.set)
        self.apply(self.done % self.value)

    def set(self, number):
        # Workers of loaders, in processes of their own, set their one thread by this too.
        caller = sys._getframe(1)
        if not self.shim.on or caller.f_code.co_filename.startswith(self.package()):
            return self.original(number)
        self.site = ridge_knobs.call_site(caller)
        return None

    def package(self):
        return os.path.join(os.path.dirname(self.torch.__file__), "")


class Threads(ThreadsKnob):
    key, setter, getter = "threads", "set_num_threads", "get_num_threads"
    done = "operators run on %d threads"

    @classmethod
    def offers(cls, shim, marker):
        cpus = max(1, len(usable_cpus()) // local_ranks())
        now = shim.torch.get_num_threads()
        if shim.torch.cuda.is_initialized():
            return [refusal(cls.key, "the GPU computes")]
        if cpus == 1 and now == 1:
            return [refusal(cls.key, "there is one CPU")]
        wanted = [cpus, max(1, cpus // 2)]
        return [
            offer(
                cls.key,
                number,
                "operators run on %d of %d CPUs; small ones lose by many threads" % (now, cpus),
            )
            for number in wanted
            if number != now
        ]


class InteropThreads(ThreadsKnob):
    key, setter, getter = "interop_threads", "set_num_interop_threads", "get_num_interop_threads"
    done = "operators that may run beside each other do so on %d threads"

    @classmethod
    def offers(cls, shim, marker):
        return [refusal(cls.key, "operators run beside each other only in torch.jit.fork()")]


class CudaKnob(Knob):
    """A setting of torch.backends. A program that sets it otherwise keeps its own."""

    def hook_torch(self, torch):
        self.torch = torch
        self.set()
        self.is_checked = False

    def at_step(self, marker):
        if self.is_checked:
            return
        self.is_checked = True
        if not self.torch.cuda.is_initialized():
            self.refuse("the program does not use CUDA")
        elif not self.is_set():
            self.refuse("the program sets it itself")
        else:
            self.apply(self.done)


class Tf32(CudaKnob):
    key, done = "matmul.tf32", "matrix products round their operands to TF32"

    @classmethod
    def offers(cls, shim, marker):
        cuda = shim.torch.cuda
        if not cuda.is_initialized():
            return [refusal(cls.key, "the program does not use CUDA")]
        if cuda.get_device_capability()[0] < 8:
            return [refusal(cls.key, "%s has no TF32" % cuda.get_device_name())]
        if shim.torch.get_float32_matmul_precision() != "highest":
            return [refusal(cls.key, "the program has set it")]
        return [offer(cls.key, True, "matrix products are in f32")]

    def set(self):
        self.torch.set_float32_matmul_precision("high")

    def is_set(self):
        return self.torch.get_float32_matmul_precision() != "highest"


class CudnnBenchmark(CudaKnob):
    key, done = "cudnn.benchmark", "cuDNN tries its algorithms for each shape"

    @classmethod
    def offers(cls, shim, marker):
        torch = shim.torch
        if not torch.cuda.is_initialized():
            return [refusal(cls.key, "the program does not use CUDA")]
        if torch.backends.cudnn.benchmark:
            return [refusal(cls.key, "the program has set it")]
        if getattr(torch.backends.cudnn, "deterministic", False):
            return [refusal(cls.key, "the program asks for deterministic algorithms")]
        count = sum(is_kernel(parameter) for parameter in parameters_of(marker))
        if count == 0:
            return [refusal(cls.key, "nothing is convolved")]
        return [offer(cls.key, True, "%d kernels of convolutions" % count)]

    def set(self):
        self.torch.backends.cudnn.benchmark = True

    def is_set(self):
        return bool(self.torch.backends.cudnn.benchmark)


def parameters_of(marker):
    """Of an optimizer or a module."""
    if hasattr(marker, "param_groups"):
        return [parameter for group in marker.param_groups for parameter in group["params"]]
    return list(marker.parameters())


def is_kernel(parameter):
    return parameter.is_cuda and parameter.dim() >= 4


KNOBS = [Cpus, Threads, InteropThreads, Tf32, CudnnBenchmark]
