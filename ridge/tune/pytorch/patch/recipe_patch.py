"""Says what a recipe changes as a patch of the program's own text; edits nothing itself.

Usage: recipe_patch.py REQUEST.json RESULT.json
  request: {"root": folder, "words": the command, "recipe": {key: value}, "sites": {key: "path:line"}}
  result:  {"diff": for patch -p1, "notes": [what is not in it, or is in it besides, and why]}

How a change is written stands in the row of its knob: `patch` in knobs.json, beside this file.
"""
import ast
import difflib
import io
import json
import os
import sys
import tokenize

OPTIMIZERS = "ASGD Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()
READS = ("item", "tolist", "cpu", "numpy")
CHANNELS_LAST = "# Images that lie in memory alike, .to(memory_format=%s.channels_last), gain more."


class NotAsPatch(Exception):
    pass


def read_table():
    """Rows of knobs.json by their keys."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "knobs.json")
    with open(path, "rb") as file:
        return {row["key"]: row for row in json.loads(file.read().decode("utf-8"))["knobs"]}


class Source:
    """One file, with edits that are made all at once: (begin, end, new bytes)."""

    def __init__(self, root, path):
        self.path = path
        try:
            with open(os.path.join(root, path), "rb") as file:
                self.data = file.read()
        except OSError as error:
            raise NotAsPatch("'%s' cannot be read: %s" % (path, error.strerror))
        try:
            self.text = self.data.decode("utf-8")
            self.tree = ast.parse(self.data)
            tokens = list(tokenize.tokenize(io.BytesIO(self.data).readline))
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError) as error:
            raise NotAsPatch("'%s' is no Python in UTF-8: %s" % (path, error))
        if self.data.startswith(b"\xef\xbb\xbf") or b"\r" in self.data.replace(b"\r\n", b"\n"):
            raise NotAsPatch("'%s' has a byte order mark, or lines that end in CR alone" % path)
        self.newline = b"\r\n" if b"\r\n" in self.data else b"\n"
        self.lines = self.data.split(b"\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.tokens = [self.ends(token) for token in tokens if self.is_text(token)]
        self.edits, self.parents = [], {}
        self.called, self.uses = set(), {}  # names; attributes that are asked of them
        for node in ast.walk(self.tree):
            self.look_at(node)

    def look_at(self, node):
        for child in ast.iter_child_nodes(node):
            self.parents[child] = node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            self.called.add(node.func.id)
        elif isinstance(node, ast.Attribute):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Name):
                    self.uses.setdefault(inner.id, set()).add(node.attr)

    @staticmethod
    def is_text(token):
        skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT)
        return token.type not in skipped and token.string != ""

    def ends(self, token):
        """A token's end as an offset, where tokenize counts characters."""
        row, column = token.end
        line = self.lines[row - 1].decode("utf-8")
        return self.starts[row - 1] + len(line[:column].encode("utf-8")), token.string

    def begin(self, node):
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node):
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def code(self, node):
        return self.data[self.begin(node) : self.end(node)].decode("utf-8")

    def walk(self, kind):
        return [node for node in ast.walk(self.tree) if isinstance(node, kind)]

    def edited(self, edits):
        pieces, at = [], 0
        for begin, end, new in sorted(edits, key=lambda edit: edit[:2]):
            if begin < at:
                raise NotAsPatch("it meets another change at one place")
            pieces += [self.data[at:begin], new]
            at = end
        return b"".join(pieces) + self.data[at:]

    def edit(self, *edits):
        """All of them or none."""
        edits = [(begin, end, new.encode("utf-8")) for begin, end, new in edits]
        try:
            ast.parse(self.edited(self.edits + edits))
        except SyntaxError:
            raise NotAsPatch("the text around line %d is too unusual" % self.line_of(edits[0][0]))
        self.edits += edits

    def line_of(self, offset):
        return self.data.count(b"\n", 0, offset) + 1

    def line_end(self, number):
        """Behind that line's break, and what has to be written before a line that follows it."""
        if number < len(self.lines):
            return self.starts[number], b""
        return len(self.data), self.newline if self.lines[-1] else b""

    def insert_lines(self, behind, lines):
        """`behind`: the number of a line, 0 for the start of the file."""
        offset, before = self.line_end(behind) if behind else (0, b"")
        newline = self.newline.decode()
        return offset, offset, before.decode() + "".join(line + newline for line in lines)

    def diff(self):
        new = self.edited(self.edits).decode("utf-8")
        name = self.path + ("\t" if " " in self.path else "")
        lines = difflib.unified_diff(whole_lines(self.text), whole_lines(new), "a/" + name, "b/" + name)
        return "".join(
            line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
        )


def whole_lines(text):
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def last_name(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def imported_names(source):
    """What names of `from x import y as z` stand for."""
    return {
        alias.asname: alias.name
        for node in source.walk(ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


def calls_of(source, names):
    aliases = imported_names(source)
    calls = [(call, last_name(call.func)) for call in source.walk(ast.Call)]
    return [call for call, name in calls if aliases.get(name, name) in names]


def top_import(source):
    """The first statement at the top that binds torch, and its name: (index, name), or None."""
    for index, node in enumerate(source.tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch" or alias.name.startswith("torch.") and not alias.asname:
                    return index, alias.asname or "torch"
    return None


class Patch:
    def __init__(self, request):
        self.root, self.recipe = request["root"], request["recipe"]
        self.sites, self.notes, self.sources = request["sites"], [], {}
        self.main = self.main_path(request["words"])
        self.settings = {}  # lines behind the imports, of each file
        self.table = read_table()

    def main_path(self, words):
        """The program's own file, as its command names it."""
        for word, after in zip(words, words[1:] + [""]):
            if word == "-m" and after:
                base = after.replace(".", "/")
                for path in (base + ".py", base + "/__main__.py"):
                    if os.path.isfile(os.path.join(self.root, path)):
                        return path
            if word.endswith(".py") and os.path.isfile(os.path.join(self.root, word)):
                return word
        return ""

    def source(self, path):
        path = os.path.relpath(os.path.join(self.root, path), self.root)
        if path.startswith(".."):
            raise NotAsPatch("'%s' does not lie below '%s'" % (path, self.root))
        if path not in self.sources:
            self.sources[path] = Source(self.root, path)
        return self.sources[path]

    def main_source(self):
        if not self.main:
            raise NotAsPatch("which file is the program is not known: put its command behind '--'")
        return self.source(self.main)

    def place(self, key):
        """The file of a key's site, and the line; 0 where the recipe has no site."""
        path, _, line = self.sites.get(key, "").rpartition(":")
        return (self.source(path), int(line)) if path else (self.main_source(), 0)

    # ---- arguments of calls ----

    def call_at(self, key, names, what):
        source, line = self.place(key)
        calls = calls_of(source, names)
        if line:
            calls = [call for call in calls if call.lineno <= line <= call.end_lineno]
        elif len(calls) > 1 and what == "DataLoader":
            calls = [call for call in calls if is_trained_from(source, call)] or calls
        if not calls:
            at = "%s:%d" % (source.path, line) if line else source.path
            raise NotAsPatch("no call of %s stands at %s" % (what, at))
        if len(calls) > 1:
            raise NotAsPatch("%d calls of %s could be meant" % (len(calls), what))
        return source, calls[0]

    def set_argument(self, source, call, key, value):
        name, place = self.argument(key)
        value = str(value)
        if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
            keyword.arg is None for keyword in call.keywords
        ):
            raise NotAsPatch("not all arguments stand at %s:%d" % (source.path, call.lineno))
        there = [keyword.value for keyword in call.keywords if keyword.arg == name]
        if place is not None and len(call.args) > place:
            there = [call.args[place]]
        if there:
            self.replace(source, there[0], name, value)
            return
        close = source.end(call) - 1
        end, text = max(token for token in source.tokens if token[0] <= close)
        is_first = text == "(" and all(begin != end for begin, _, _ in source.edits)
        argument = "%s=%s" % (name, value)
        new = argument if is_first else " %s," % argument if text == "," else ", " + argument
        source.edit((end, end, new))

    def argument(self, key):
        """Its name, and the place where it may stand without one or None."""
        patch = self.table[key]["patch"]
        return patch["argument"], patch.get("place")

    @staticmethod
    def replace(source, node, name, value):
        code = source.code(node)
        if not isinstance(node, ast.Constant):
            where = "%s:%d" % (source.path, node.lineno)
            raise NotAsPatch("%s is '%s' at %s: give that the value" % (name, code, where))
        if code != value:
            source.edit((source.begin(node), source.end(node), value))

    def loader(self, key, value):
        source, call = self.call_at(key, ["DataLoader"], "DataLoader")
        patch = self.table[key]["patch"]
        if "needs_workers" in patch:
            name, place = self.argument("loader.workers")
            workers = [k.value for k in call.keywords if k.arg == name] + call.args[place : place + 1]
            has_none = not workers or getattr(workers[0], "value", 1) == 0
            if has_none and self.recipe.get("loader.workers", 0) == 0:
                raise NotAsPatch("the loader has no workers")
        self.set_argument(source, call, key, value)
        if "note" in patch and value:
            self.notes.append("%s: %s" % (key, patch["note"]))

    def optimizer(self, key, value):
        source, call = self.call_at(key, OPTIMIZERS, "an optimizer of torch")
        self.set_argument(source, call, key, value)

    # ---- settings behind the imports ----

    def add_lines(self, source, lines):
        """Behind the imports that torch is among; an edit of its own at the end, for all."""
        mine = self.settings.setdefault(source.path, [])
        mine += [line for line in lines if line not in mine]

    def torch_name(self, source):
        found = top_import(source)
        if found is None:
            self.add_lines(source, ["import torch"])
        return "torch" if found is None else found[1]

    def setting(self, key, value):
        source, _ = self.place(key)
        patch, is_number = self.table[key]["patch"], self.table[key]["type"] == "number"
        name = patch["name"]
        if "values" in patch:
            value = patch["values"][json.dumps(value)]
        calls = calls_of(source, [name])
        if " = " in patch["line"]:
            assigned = [t for node in source.walk(ast.Assign) for t in node.targets]
            calls = [node for node in assigned if last_name(node) == name]
        if calls and is_number and len(calls) == 1 and len(calls[0].args) == 1:
            self.replace(source, calls[0].args[0], name, str(value))
        elif calls:
            raise NotAsPatch("the program sets it itself at %s:%d" % (source.path, calls[0].lineno))
        else:
            self.add_lines(source, [patch["line"] % (self.torch_name(source), value)])

    def write_settings(self):
        for path, lines in self.settings.items():
            lines.sort(key=lambda line: not line.startswith("import "))
            source = self.sources[path]
            body, found = source.tree.body, top_import(source)
            is_import = [isinstance(node, (ast.Import, ast.ImportFrom)) for node in body]
            index = found[0] if found else is_import.index(True) if True in is_import else -1
            while 0 <= index < len(body) - 1 and is_import[index + 1]:
                index += 1
            if index < 0 and body and ast.get_docstring(source.tree) is not None:
                index = 0
            behind = body[index].end_lineno if index >= 0 else 0
            try:
                source.edit(source.insert_lines(behind, ([""] if behind else []) + lines))
            except NotAsPatch as error:
                self.notes.append("%s: not as a patch: %s" % ("; ".join(lines), error))

    # ---- the model ----

    def model_line(self, source):
        """The one statement `name = Something(...)` that makes what the program trains or asks."""
        made = {}
        for node in source.walk(ast.Assign):
            if isinstance(node.value, ast.Call) and is_model(source, node):
                made.setdefault(node.targets[0].id, []).append(node)
        if len(made) != 1:
            names = " and ".join("'%s'" % name for name in sorted(made)) or "no name"
            raise NotAsPatch("in '%s' the model seems to be %s" % (source.path, names))
        (nodes,) = made.values()
        if len({source.parents[node] for node in nodes}) > 1:
            raise NotAsPatch("the model is made at several places of '%s'" % source.path)
        node = max(nodes, key=lambda node: node.lineno)
        first = source.lines[node.lineno - 1][: node.col_offset]
        rest = source.lines[node.end_lineno - 1][node.end_col_offset :].strip()
        if first.strip() or rest and not rest.startswith(b"#"):
            raise NotAsPatch("line %d of '%s' holds more" % (node.lineno, source.path))
        return node, first.decode()

    def channels_last(self, key, value):
        if not value:
            raise NotAsPatch("it is the default")
        source, _ = self.place(key)
        node, indent = self.model_line(source)
        torch, end = self.torch_name(source), source.end(node.value)
        source.edit(
            source.insert_lines(node.lineno - 1, [indent + CHANNELS_LAST % torch]),
            (end, end, ".to(memory_format=%s.channels_last)" % torch),
        )

    def compile(self, key, value):
        source, _ = self.place(key)
        node, indent = self.model_line(source)
        arguments = 'options={"fallback_random": True}'
        if value == "ridge":
            self.add_lines(source, ["import ridge.torch"])
            arguments = 'backend="ridge", options={"same_random": True}'
        elif value != "default":
            torch = self.torch_name(source)
            self.add_lines(source, ["import torch._inductor"])
            mode = '**%s._inductor.list_mode_options("%s")' % (torch, value)
            arguments = 'options={%s, "fallback_random": True}' % mode
        line = "%s%s.compile(%s)" % (indent, node.targets[0].id, arguments)
        source.edit(source.insert_lines(node.end_lineno, [line]))

    # ---- values that are read at each step ----

    def late_reading(self):
        """Beside the recipe: no run can try it without the program's text."""
        if not self.main:
            return
        source = self.source(self.main)
        if b"cuda" not in source.data:
            return  # a value of the CPU is read for nothing
        for loop in training_loops(source):
            for statement in loop.body:
                for call in reads_in(statement):
                    self.read_late(source, loop, statement, call)

    def read_late(self, source, loop, statement, call):
        where = "%s:%d" % (source.path, call.lineno)
        what = "'.%s()' makes each step wait for the GPU" % call.func.attr
        try:
            name, is_float = sum_of(source, loop, statement, call)
            torch = self.torch_name(source)
            begin, end = source.end(call.func.value), source.end(call)
            indent = source.lines[loop.lineno - 1][: loop.col_offset].decode()
            line = "%s%s = %s.as_tensor(%s).item()" % (indent, name, torch, name)
            source.edit(
                (begin, end, ".detach().double()" if is_float else ".detach()"),
                source.insert_lines(loop.end_lineno, [line]),
            )
            self.notes.append(
                "%s: %s; the patch reads it once, behind the loop (no part of the recipe: measure "
                "it)" % (where, what)
            )
        except NotAsPatch as error:
            self.notes.append("%s: %s; not as a patch: %s" % (where, what, error))

    def make(self):
        makers = {
            "loader": self.loader,
            "optimizer": self.optimizer,
            "setting": self.setting,
            "channels_last": self.channels_last,
            "compile": self.compile,
        }
        for key, value in self.recipe.items():
            patch = self.table[key]["patch"]
            try:
                if "why_not" in patch:
                    why = patch["why_not"]
                    raise NotAsPatch(why % value if "%s" in why else why)
                makers[patch["how"]](key, value)
            except NotAsPatch as error:
                self.notes.append("%s: not as a patch: %s" % (key, error))
        try:
            self.late_reading()
        except NotAsPatch:
            pass  # the file cannot be read, as was said of each key
        self.write_settings()
        changed = [source for _, source in sorted(self.sources.items()) if source.edits]
        return {"diff": "".join(source.diff() for source in changed), "notes": self.notes}


def is_call_of(node, name):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def training_loops(source):
    """Innermost ones that hold a backward()."""
    loops = [
        loop
        for loop in source.walk((ast.For, ast.While))
        if any(is_call_of(node, "backward") for node in ast.walk(loop))
    ]
    return [
        loop
        for loop in loops
        if not any(inner is not loop and inner in loops for inner in ast.walk(loop))
    ]


def is_trained_from(source, call):
    """Whether a training loop runs over the name that the call's result is given."""
    parent = source.parents.get(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return any(
        isinstance(node, ast.Name) and node.id in names
        for loop in training_loops(source)
        if isinstance(loop, ast.For)
        for node in ast.walk(loop.iter)
    )


def is_model(source, assignment):
    """Its parameters go to an optimizer, or it is put into eval(); and it is called."""
    targets = assignment.targets
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return False
    uses = source.uses.get(targets[0].id, set())
    return targets[0].id in source.called and not uses.isdisjoint({"parameters", "eval"})


def tensors_of(source, loop):
    """Names that are tensors in the loop: what backward() is asked of, and outputs of the model."""
    models = {node.targets[0].id for node in source.walk(ast.Assign) if is_model(source, node)}
    names = {last_name(n.func.value) for n in ast.walk(loop) if is_call_of(n, "backward")}
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if getattr(node.value.func, "id", "") in models:
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def reads_in(statement):
    """At each step: what stands under a condition is read now and then."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)):
        return []
    return [
        node
        for node in ast.walk(statement)
        if any(is_call_of(node, name) for name in READS) and not node.args and not node.keywords
    ]


def sum_of(source, loop, statement, call):
    """The name that `name += value.item()` adds to, where it may stay a tensor until the loop ends,
    and whether it is a float."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
        raise NotAsPatch("it is no sum")
    if call.func.attr != "item" or not isinstance(statement.target, ast.Name) or loop.orelse:
        raise NotAsPatch("it is no plain sum")
    value = statement.value
    while value is not call:
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
            raise NotAsPatch("it is computed with")
        value = next(s for s in (value.left, value.right) if call in ast.walk(s))
    if len(reads_in(statement)) > 1:
        raise NotAsPatch("several values are read")
    receiver = list(ast.walk(call.func.value))
    is_elsewhere = any(is_call_of(node, name) for node in receiver for name in READS)
    names = {node.id for node in receiver if isinstance(node, ast.Name)}
    if is_elsewhere or names.isdisjoint(tensors_of(source, loop)):
        raise NotAsPatch("whether it is a tensor is not known")
    name = statement.target.id
    if sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop)) > 1:
        raise NotAsPatch("'%s' is used within the loop" % name)
    return name, isinstance(start_of(source, loop, name), float)


def start_of(source, loop, name):
    """The literal that a name has last been given before the loop."""
    found = None
    for node in sorted(source.walk(ast.Assign), key=lambda node: node.lineno):
        if node.lineno >= loop.lineno:
            break
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts)
            for one, value in pairs:
                if getattr(one, "id", "") == name:
                    found = value
    if not isinstance(found, ast.Constant) or type(found.value) not in (int, float):
        raise NotAsPatch("what '%s' begins with is not known" % name)
    return found.value


def main():
    with open(sys.argv[1], "rb") as file:
        request = json.loads(file.read().decode("utf-8"))
    result = Patch(request).make()
    with open(sys.argv[2], "wb") as file:
        file.write(json.dumps(result).encode("utf-8"))


if __name__ == "__main__":
    main()
