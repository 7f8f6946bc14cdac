"""A process of the program that imports its packages once, and is forked for runs of the program.

It is Python at the point where it would begin the program: no line of that has run. It imports the
packages that a run of the program had imported by its first step (ridge_imports.py), and nothing of
the program's own. Then it waits at a socket (ridge/attach/warm_parent.h). For each order it
forks a process that execs `ridge supervise`, and that one forks the program: serve() returns there,
with argv, variables, folder and streams of that run, and Python begins the program.

Torch, and the package whose import loads it, are taken out of sys.modules again: where the program
imports them, they are put back, and the shim's hooks run, as behind a real import.

It forks only while it is as a process without threads, devices and sockets is, whose random numbers
nobody has drawn. What came behind torch is imported in a process of its own: where that is not fit
to be forked, the one that has imported torch alone is.
"""
import copy
import ctypes
import importlib
import json
import os
import random
import signal
import socket
import sys
from types import ModuleType

import ridge_packages

PR_SET_PDEATHSIG = 1
OWN = "RIDGE_SHIM_"
NOT_FIT = 3  # exit code of the process that has imported everything
ORDER_BYTES = 65536


class Unfit(Exception):
    """Why this process may not be forked."""


def serve(folder, hooks):
    """Returns in processes that are to become the program: the folder of the shim's files there."""
    try:
        return Parent(folder, hooks).serve()
    except BaseException:
        # It may do anything but go on as the program.
        os._exit(1)


class Parent:
    def __init__(self, folder, hooks):
        self.folder = folder
        self.first = ridge_packages.first_environment()
        self.words = ridge_packages.words_of_process()
        self.connection = connect(folder)
        self.state = State()
        self.hidden = Hidden(hooks)

    def serve(self):
        try:
            with open(os.path.join(self.folder, "imports.json")) as file:
                wanted = json.load(file)
            self.import_all(wanted["with_torch"])
            self.check_variables(wanted)
            self.state.check()
            self.hidden.hide()
        except Exception as error:
            self.say({"refusal": told(error)})
            os._exit(0)
        note = ""
        if wanted["later"]:
            folder, note = self.serve_by_child(wanted)
            if folder:
                return folder
        return self.answer(note)

    def serve_by_child(self, wanted):
        """A process that has imported the rest as well serves: ("", why) comes back where it is not
        fit, and in processes that are to be the program (folder, "")."""
        reader, writer = os.pipe()
        self.state.descriptors = descriptors_of_process()
        parent, child = os.getpid(), os.fork()
        if child == 0:
            try:
                os.close(reader)
                end_with(parent)
                self.state.drawn["random"] = random.getstate()  # a fork seeds it
                self.import_later(wanted)
            except Exception as error:
                os.write(writer, told(error).encode("utf-8", "replace"))
                os._exit(NOT_FIT)
            os.close(writer)
            return self.answer(""), ""
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            why = pipe.read().decode("utf-8", "replace")
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != NOT_FIT:
            os._exit(0)
        return "", why

    def import_all(self, entries):
        names = [name for name, _ in entries]
        # Before anything can have drawn from it.
        for name in [name for name in names if name == "numpy.random"] + names:
            if name not in sys.modules:
                self.hidden.import_module(name)
                self.state.sees()
        for name, path in entries:
            module = sys.modules.get(name)
            if module is not None and ridge_packages.file_of(module) != path:
                raise Unfit("'%s' is another module here than in the program" % name)

    def import_later(self, wanted):
        self.hidden.show_all()
        self.import_all(wanted["later"])
        self.state.check()
        self.hidden.hide()
        here, there = ridge_packages.changes_of(self.first), wanted["environment"]
        for name in others({*here, *there}, here, there):
            raise Unfit("the program sets %s behind its import of torch" % name)

    def check_variables(self, wanted):
        """Packages read variables when they are loaded: the program may have set none of its own
        before. One that loads torch sets more behind that."""
        here, there = ridge_packages.changes_of(self.first), wanted["set_by_torch"]
        for name in others(there, here, there):
            raise Unfit("the program sets %s before it imports torch" % name)
        for name in others(here, here, wanted["environment"]):
            raise Unfit("a package sets %s otherwise than in the program" % name)

    # ---- orders ----

    def say(self, message):
        self.connection.send(json.dumps(message).encode())

    def answer(self, note):
        """Until ridge is gone; returns in processes that are to be the program."""
        self.say({"ready": {"pid": os.getpid(), "note": note}})
        while True:
            text, descriptors, _, _ = socket.recv_fds(
                self.connection, ORDER_BYTES, 3, socket.MSG_CMSG_CLOEXEC
            )
            reap()
            if not text:
                os._exit(0)
            folder = self.obey(json.loads(text.decode()), descriptors)
            if folder:
                return folder
            for descriptor in descriptors:
                os.close(descriptor)

    def obey(self, order, descriptors):
        try:
            with open(order["start"]) as file:
                start = json.load(file)
            self.check(start)
            supervisor = os.fork()
        except Exception as error:
            self.say({"refusal": told(error)})
            return ""
        if supervisor:
            self.say({"started": supervisor})
            return ""
        try:
            folder = become_supervisor(start, descriptors)
            self.connection.close()
            self.become_program(start)
            return folder
        except BaseException:
            os._exit(1)

    def check(self, start):
        if len(start["command"]) != len(self.words):
            raise Unfit("another command")
        # The program's own file, or what is in its place, was settled when Python began.
        fixed = len(self.words) - max(0, len(sys.argv) - 1)
        if start["command"][1:fixed] != self.words[1:fixed]:
            raise Unfit("another command")
        for name, (before, now) in changes(start).items():
            if name == "PYTHONPATH":
                # A script before Python may have put something else in front.
                is_ours = before == self.first.get(name)
                before, now = behind(before, self.folder), behind(now, start["folder"])
                if is_ours and before == now:
                    continue
            if not name.startswith(OWN):
                raise Unfit("another %s" % name)

    def become_program(self, start):
        for name, (_, now) in changes(start).items():
            if now is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = now
        count = max(0, len(sys.argv) - 1)
        command = start["command"]
        sys.argv[1:] = command[len(command) - count :]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[1:] = command[1:]
        self.state.draw_anew()
        self.hidden.begin()


def others(names, here, there):
    """Those variables that are not changed alike here and there."""
    pairs = {name: [(name in one, one.get(name)) for one in (here, there)] for name in names}
    return sorted(name for name, (one, other) in pairs.items() if one != other)


def changes(start):
    """(before, now) of variables that are others for this start than for that of this process: what
    packages, or a script before Python, have set besides stays."""
    before, now = (
        dict(entry.split("=", 1) for entry in start[key] if "=" in entry)
        for key in ("parent_environment", "environment")
    )
    names = sorted(set(before) | set(now))
    return {
        name: (before.get(name), now.get(name))
        for name in names
        if before.get(name) != now.get(name)
    }


def behind(path, folder):
    return None if path is None else [entry for entry in path.split(":") if entry != folder]


def told(error):
    return str(error).strip()[:300] or type(error).__name__


def connect(folder):
    # A path through the folder's descriptor is short enough, wherever the folder is.
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect("/proc/self/fd/%d/parent" % place)
        return connection
    finally:
        os.close(place)


def reap():
    """Those that have supervised a run."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_with(parent):
    """This process is killed where that one ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become_supervisor(start, descriptors):
    """Returns in a process that it forks, once the supervisor has taken that over."""
    theirs, empty, output = descriptors
    for stream, number in ((0, empty), (1, output), (2, output)):
        os.dup2(number, stream)
    if start["working_folder"]:
        os.chdir(start["working_folder"])
    reader, writer = os.pipe()
    supervisor, program = os.getpid(), os.fork()
    if program == 0:
        os.close(writer)
        end_with(supervisor)
        for number in descriptors:
            os.close(number)
        if not os.read(reader, 1):
            os._exit(1)
        os.close(reader)
        return start["folder"]
    for number in (theirs, writer):
        os.set_inheritable(number, True)
    words = ["ridge", "supervise", str(theirs), str(program), str(writer)]
    os.execve(start["supervisor"], words + start["words"], os.environ)


class State:
    """All that has to be as an import alone leaves it."""

    def __init__(self):
        self.drawn = {"random": random.getstate()}
        self.descriptors = descriptors_of_process()

    def sees(self):
        """Behind the import of a module, before another may draw."""
        if "numpy" not in self.drawn and "numpy.random" in sys.modules:
            self.drawn["numpy"] = state_of_numpy()
        if "torch" not in self.drawn and "torch" in sys.modules:
            self.drawn["torch"] = state_of_torch()

    def check(self):
        for number, path in sorted(descriptors_of_process().items()):
            if self.descriptors.get(number) != path:
                raise Unfit("a package that it imports holds '%s'" % path)
        if random.getstate() != self.drawn["random"]:
            raise Unfit("a package that it imports draws random numbers")
        if "numpy" in self.drawn and state_of_numpy() != self.drawn["numpy"]:
            raise Unfit("a package that it imports draws random numbers of numpy")
        if "torch" in self.drawn and state_of_torch() != self.drawn["torch"]:
            raise Unfit("a package that it imports draws random numbers of torch")
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            raise Unfit("a package that it imports has begun to use the GPU")
        try:
            os.waitpid(-1, os.WNOHANG)
            raise Unfit("a package that it imports starts a process")
        except ChildProcessError:
            pass
        self.check_threads()

    @staticmethod
    def check_threads():
        """Libraries that can be forked end their threads before, and make them anew when needed."""
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        if len(os.listdir("/proc/self/task")) > 1:
            raise Unfit("a package that it imports starts a thread")

    def draw_anew(self):
        """As at its import: each process has random numbers of its own."""
        random.seed()
        if "numpy" in self.drawn:
            sys.modules["numpy.random"].seed()


def descriptors_of_process():
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[int(number)] = os.readlink("/proc/self/fd/" + number)
        except OSError:  # the listing's own
            pass
    return found


def state_of_numpy():
    kind, keys, *rest = sys.modules["numpy.random"].get_state()
    return kind, keys.tobytes(), rest


def state_of_torch():
    get_state = getattr(sys.modules["torch"], "get_rng_state", None)
    return None if get_state is None else bytes(get_state().tolist())


class Hidden:
    """Finds torch, and the package whose import loads it, which are loaded and were taken out of
    sys.modules."""

    def __init__(self, hooks):
        self.hooks = hooks
        self.tops = ["torch"]
        self.modules = {}  # of each top: its modules by their names
        self.of_torch, self.before = set(), {}

    def import_module(self, name):
        had = "torch" in sys.modules
        importlib.import_module(name)
        top = name.partition(".")[0]
        if not had and "torch" in sys.modules:
            self.of_torch = {module for module in sys.modules if is_of(module, "torch")}
            if top != "torch":
                self.tops.append(top)

    def hide(self):
        if "torch" not in sys.modules:
            raise Unfit("it does not import torch")
        for top in self.tops:
            names = [name for name in sys.modules if is_of(name, top)]
            self.modules[top] = {name: sys.modules.pop(name) for name in names}

    def show_all(self):
        for modules in self.modules.values():
            sys.modules.update(modules)
        self.modules.clear()

    def begin(self):
        """In the process that is to be the program."""
        original = self.hooks["torch"]

        def hook(torch):
            original(torch)
            self.hand_on()

        self.hooks["torch"] = hook
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        spec = copy.copy(self.modules[name][name].__spec__)
        spec.loader = Shower(self, name)
        return spec

    def show(self, top):
        sys.modules.update(self.modules.pop(top))
        if top != "torch":
            # It imports torch, and what it imports behind that sees what the hooks have done.
            importlib.import_module("torch")
            return
        self.before = {module: dict(vars(module)) for module in self.owners()}
        for name in ("torch.optim.optimizer", "torch.utils.data.dataloader"):
            if name in sys.modules:
                self.hooks[name](sys.modules[name])

    def owners(self):
        """Modules in which the shim puts functions of its own."""
        names = [*self.of_torch, "random", "numpy.random"]
        found = [sys.modules.get(name) for name in names]
        return [module for module in found if isinstance(module, ModuleType)]

    def hand_on(self):
        """Packages behind torch have imported from it what the shim has put there since."""
        replaced = {}
        for module, before in self.before.items():
            now = vars(module)
            for name, value in before.items():
                if callable(value) and now.get(name, value) is not value:
                    replaced[id(value)] = now[name]
        for name, module in list(sys.modules.items()):
            is_behind = name not in self.of_torch and not name.startswith("ridge_")
            if not is_behind or not isinstance(module, ModuleType) or module in self.before:
                continue
            members = vars(module)
            for member, value in list(members.items()):
                if id(value) in replaced:
                    members[member] = replaced[id(value)]
        self.before = {}


class Shower:
    """Loader of a module that was hidden."""

    def __init__(self, hidden, name):
        self.hidden, self.name = hidden, name
        self.module = hidden.modules[name][name]
        self.spec = self.module.__spec__

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec
        self.hidden.show(self.name)


def is_of(name, top):
    return name == top or name.startswith(top + ".")
