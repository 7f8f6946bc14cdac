"""Put by Ridge in front of a program's own sitecustomize: notices torch, and gives way.

A process that never imports torch pays for this file alone; the rest is loaded with torch.
"""
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _load(name):
    """A module beside this file, whose folder is not on sys.path any more."""
    import importlib.util

    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(_FOLDER, name + ".py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def _hook_runner(hook):
    def run(module):
        # Without our files, as when Ridge is gone, the program goes on as if we had not been there.
        try:
            shim = _load("ridge_shim")
            getattr(shim.the_shim(_FOLDER, _load), hook)(module)
        except Exception:
            pass

    return run


class _TorchFinder:
    """Lets the other finders find some modules of torch, and has a hook run behind each import."""

    _hooks = {
        "torch.optim.optimizer": _hook_runner("hook_optimizer"),
        "torch.utils.data.dataloader": _hook_runner("hook_loader"),
        "torch": _hook_runner("hook_torch"),
    }

    def find_spec(self, name, path=None, target=None):
        hook = self._hooks.get(name)
        if hook is None:
            return None
        if name == "torch" and os.path.exists(os.path.join(_FOLDER, "recipe.json")):
            _hook_runner("before_torch")(None)
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._run_behind(spec.loader, hook)
                return spec
        return None

    @staticmethod
    def _run_behind(loader, hook):
        original = getattr(loader, "exec_module", None)

        def exec_module(module):
            # The loader stays what it is for all who look at it later.
            loader.__dict__.pop("exec_module", None)
            original(module)
            hook(module)

        try:
            if original is not None:
                loader.exec_module = exec_module
        except AttributeError:
            pass


def _begin():
    global _FOLDER
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    if os.environ.get("RIDGE_SHIM_PARENT"):
        # Comes back in processes that it forked, each with a folder of its own.
        _load("ridge_packages")  # which that imports
        _FOLDER = _load("ridge_parent").serve(_FOLDER, _TorchFinder._hooks)
    # One for all: a program may start thousands of interpreters.
    touched = os.path.join(_FOLDER, "loaded")
    os.close(os.open(touched, os.O_CREAT | os.O_WRONLY, 0o600))
    sys.meta_path.insert(0, _TorchFinder())


def _chain():
    """Runs the sitecustomize that we stand before; what it raises is handled as Python does."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find("sitecustomize", None, None)
        if spec is not None and spec.loader is not None:
            import importlib.util

            module = importlib.util.module_from_spec(spec)
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)
            return
    # So Python takes it that there is none, and sys.modules is as without us.
    raise ImportError("no sitecustomize", name="sitecustomize")


try:
    _begin()
except Exception:
    pass
_chain()
