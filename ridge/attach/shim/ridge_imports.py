"""Notes which packages a program has imported by its first step, for a process that imports them
beforehand (ridge_parent.py): imports_PID.json.

    "refusal"       why nothing may be imported beforehand; or ""
    "words"         the command line of the process
    "with_torch"    modules of installed packages that are there when torch is: [name, file]
    "later"         those that came behind it, until the first step, in order
    "environment"   variables that are another at the first step than at the start, null: gone
"""
import json
import os

import ridge_shim


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        self.packages = shim.load("ridge_packages")
        self.first, self.refusal, self.with_torch, self.is_done = {}, "", None, False

    def before_torch(self):
        try:
            self.first = self.packages.first_environment()
            changed = self.packages.changes_of(self.first)
            if changed:
                # Libraries read variables when they are loaded.
                self.refusal = "the program sets %s before it imports torch" % min(changed)
        except Exception as error:
            self.refusal = "its environment cannot be read: %s" % str(error)[:200]

    def hook_torch(self, torch):
        self.with_torch = self.packages.installed()

    def at_step(self, marker):
        if self.is_done:
            return
        self.is_done = True
        try:
            self.write()
        except Exception as error:
            self.shim.trouble("what the program imports", error)

    def write(self):
        with_torch = self.with_torch or []
        known = {name for name, _ in with_torch}
        text = {
            "refusal": self.refusal,
            "words": self.packages.words_of_process(),
            "with_torch": with_torch,
            "later": [entry for entry in self.packages.installed() if entry[0] not in known],
            "environment": self.packages.changes_of(self.first),
        }
        path = os.path.join(self.shim.folder, "imports_%d.json" % self.shim.pid)
        ridge_shim.write_whole(path, json.dumps(text))
