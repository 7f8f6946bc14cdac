"""Changes a program as a recipe says (recipe.json): the frame of the knobs, one class a key.

The table of all keys, knobs.json, says of each what Ridge and its pages say, too.
A knob that does not suit the program leaves it as it is, and says why.
"""
import json
import os
import sys
import sysconfig

import ridge_shim

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Modules that files of knobs import; in the order in which they import each other.
USED = (
    "ridge_samples",
    "ridge_cache",
    "ridge_background",
    "ridge_knob_process",
    "ridge_loaders",
    "ridge_models",
    "ridge_scaler",
    "ridge_knob_loader",
)
CLASSES = ("bit_identical", "reassociation", "precision", "trajectory")
SAME_BITS, REASSOCIATION, PRECISION, TRAJECTORY = range(4)
MOST_TEXT = 300


def read_table():
    """Rows of knobs.json by their keys, in its order."""
    with open(os.path.join(FOLDER, "knobs.json"), "rb") as file:
        return {row["key"]: row for row in json.loads(file.read().decode())["knobs"]}


TABLE = read_table()


def class_of_workers(is_iterable, drawn, is_same, is_plain):
    """(class, reason) of another number of loader workers. `drawn` names the source of random numbers
    that samples draw from, and is empty where they draw none."""
    if is_iterable:
        return TRAJECTORY, "workers take turns, so the order is another"
    if drawn:
        return TRAJECTORY, "samples draw random numbers (%s)" % drawn
    if not is_same:
        return TRAJECTORY, "samples differ when they are read again"
    # Workers collate into memory of one layout: what runs on it may add up otherwise.
    return (SAME_BITS, "") if is_plain else (REASSOCIATION, "workers lay batches out otherwise")


class Knob:
    """One key of a recipe in one process.

    What a knob raises in a hook is caught, and makes it refused. Files of knobs may also have
    watch_torch(shim, torch), watch_optimizer(shim, module) and watch_loader(shim, module): they are
    called before the hooks of their knobs, and where there are only offers to be made.
    """

    key = ""
    # Samples of a step over those of a step of the program as it is, where it is applied.
    work = 1
    # What it offers is known better the longer the program has run: offers() is asked without a marker,
    # on any thread.
    is_told_late = False

    def __init__(self, shim, value):
        self.shim, self.value = shim, value
        self.state, self.text, self.site, self.seconds = "waiting", "", "", 0.0

    @classmethod
    def offers(cls, shim, marker):
        """In a program that has made some steps, on the thread that steps: a list of offer() and
        refusal(). `marker`: its optimizer, or the outermost module of a program without one. A
        refused key has one entry."""
        return []

    def before_torch(self):
        pass

    def hook_torch(self, torch):
        pass

    def hook_optimizer(self, module):
        pass

    def hook_loader(self, module):
        pass

    def at_step(self, marker):
        pass

    # ---- what becomes of it ----

    def apply(self, text, site=""):
        self.state, self.text, self.site = "applied", text, site or self.site

    def refuse(self, text, site=""):
        self.state, self.text, self.site = "refused", text, site or self.site

    def fail(self, error):
        self.refuse("it failed: %s" % told(error))

    def fact(self):
        return {
            "key": self.key,
            "value": value_text(self.value),
            "state": self.state,
            "text": self.text[:MOST_TEXT],
            "site": self.site,
            "seconds": self.seconds,
            "work": self.work,
        }


def offer(key, value, text, semantic_class=None, work=1):
    """`semantic_class`: where it is another than that of the table. `work`: samples of a step over
    those of a step without."""
    if semantic_class is None:
        semantic_class = CLASSES.index(TABLE[key]["class"])
    return {
        "key": key,
        "value": value_text(value),
        "class": semantic_class,
        "text": text[:MOST_TEXT],
        "refusal": "",
        "work": work,
    }


def refusal(key, text):
    return {"key": key, "value": "", "class": 0, "text": "", "refusal": text[:MOST_TEXT]}


def value_text(value):
    """As a recipe has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def told(error):
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:MOST_TEXT]


def is_foreign(path):
    """Whether a file is of the program itself, and neither of a package nor of ours."""
    folders = (FOLDER, sysconfig.get_paths()["stdlib"])
    is_package = "site-packages" in path or "dist-packages" in path
    return not (is_package or path.startswith("<") or path.startswith(folders))


def call_site(frame=None):
    """ "path:line" of the innermost call that stands in the program's own text; empty where there
    is none."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if is_foreign(path):
            path = os.path.abspath(path)
            here = os.path.join(os.getcwd(), "")
            path = path[len(here) :] if path.startswith(here) else path
            return "%s:%d" % (path, frame.f_lineno)
        frame = frame.f_back
    return ""


def knob_files(shim):
    """Modules that have hooks, and classes of knobs as their KNOBS."""
    # Loaded by name they are found by import.
    for name in USED:
        shim.load(name)
    names = [name[:-3] for name in sorted(os.listdir(FOLDER)) if name.endswith(".py")]
    names = ["ridge_models"] + [name for name in names if name.startswith("ridge_knob_")]
    return [shim.load(name) for name in names]


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        with open(os.path.join(shim.folder, "recipe.json"), "rb") as file:
            self.recipe = json.loads(file.read().decode())
        self.files = knob_files(shim)
        classes = [knob for file in self.files for knob in file.KNOBS]
        # A flag that is off leaves the program as it is.
        self.knobs = [
            knob(shim, self.recipe[knob.key])
            for knob in classes
            if self.recipe.get(knob.key, False) is not False
        ]
        for key in sorted(set(self.recipe) - {knob.key for knob in classes}):
            shim.note("no knob is called %s" % key[:100])
        self.steppers = [knob for knob in self.knobs if type(knob).at_step is not Knob.at_step]

    def run_hooks(self, hook, *values):
        for knob in self.knobs:
            try:
                getattr(knob, hook)(*values)
            except Exception as error:
                knob.fail(error)

    def watch(self, hook, module):
        watch_all(self.files, self.shim, hook, module)

    def before_torch(self):
        self.run_hooks("before_torch")

    def hook_torch(self, torch):
        self.watch("watch_torch", torch)
        self.run_hooks("hook_torch", torch)

    def hook_optimizer(self, module):
        self.watch("watch_optimizer", module)
        self.run_hooks("hook_optimizer", module)

    def hook_loader(self, module):
        self.watch("watch_loader", module)
        self.run_hooks("hook_loader", module)

    def at_step(self, marker):
        for knob in self.steppers:
            try:
                knob.at_step(marker)
            except Exception as error:
                knob.fail(error)

    def facts(self):
        return {"knobs": [knob.fact() for knob in self.knobs]}


def watch_all(files, shim, hook, module):
    for file in files:
        try:
            getattr(file, hook, lambda *_: None)(shim, module)
        except Exception as error:
            shim.trouble(file.__name__, error)
