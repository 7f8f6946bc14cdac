"""Notes which packages a program has imported by its first step, for a process that imports them
beforehand (ridge_parent.py): imports_PID.json.

    "words"         the command line of the process
    "with_torch"    modules of installed packages that are there when torch is: [name, file]
    "later"         those that came behind it, until the first step, in order
    "environment"   variables that are others at the first step than at the start, null: gone
    "set_by_torch"  those that were when torch was there
"""
import json
import os

import ridge_shim


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        self.packages = shim.load("ridge_packages")
        self.first = self.packages.first_environment()
        self.with_torch, self.set_by_torch, self.is_done = [], {}, False

    def hook_torch(self, torch):
        try:
            self.with_torch = self.packages.installed()
            self.set_by_torch = self.packages.changes_of(self.first)
        except Exception as error:
            self.is_done = True
            self.shim.trouble("what the program imports", error)

    def at_step(self, marker):
        if self.is_done:
            return
        self.is_done = True
        try:
            self.write()
        except Exception as error:
            self.shim.trouble("what the program imports", error)

    def write(self):
        known = {name for name, _ in self.with_torch}
        text = {
            "words": self.packages.words_of_process(),
            "with_torch": self.with_torch,
            "later": [entry for entry in self.packages.installed() if entry[0] not in known],
            "environment": self.packages.changes_of(self.first),
            "set_by_torch": self.set_by_torch,
        }
        path = os.path.join(self.shim.folder, "imports_%d.json" % self.shim.pid)
        ridge_shim.write_whole(path, json.dumps(text))
