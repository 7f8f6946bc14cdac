"""Finds out what of a recipe could help a program, once it has made some steps."""
import time

import ridge_shim

ENOUGH_STEPS = 10
ENOUGH_SECONDS = 5.0


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        self.knobs = shim.load("ridge_knobs")
        self.files = self.knobs.knob_files(shim)
        self.offers, self.is_probed, self.is_going, self.first = [], False, False, 0.0

    def watch(self, hook, module):
        self.knobs.watch_all(self.files, self.shim, hook, module)

    def hook_torch(self, torch):
        self.watch("watch_torch", torch)

    def hook_optimizer(self, module):
        self.watch("watch_optimizer", module)

    def hook_loader(self, module):
        self.watch("watch_loader", module)
        self.watch("watch_loader_of_probe", module)

    def at_step(self, marker):
        # What is called in probing may step itself.
        if self.is_probed or self.is_going:
            return
        self.first = self.first or time.monotonic()
        steps = self.shim.steps
        steps.settle()
        if steps.count < ENOUGH_STEPS and time.monotonic() - self.first < ENOUGH_SECONDS:
            return
        self.is_going = True
        for knob in self.all_knobs():
            if not knob.is_told_late:
                self.offers += self.offers_of(knob, marker)
        self.is_going, self.is_probed = False, True
        self.shim.write()

    def all_knobs(self):
        return [knob for file in self.files for knob in file.KNOBS]

    def offers_of(self, knob, marker):
        try:
            return knob.offers(self.shim, marker)
        except Exception as error:
            text = "it could not be found out: %s" % self.knobs.told(error)
            return [self.knobs.refusal(knob.key, text)]

    def facts(self):
        # Before all is known there is nothing that may be acted on.
        if not self.is_probed:
            return {"offers": [], "is_probed": False}
        late = [knob for knob in self.all_knobs() if knob.is_told_late]
        offers = self.offers + [offer for knob in late for offer in self.offers_of(knob, None)]
        return {"offers": offers, "is_probed": True}
