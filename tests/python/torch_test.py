"""`torch.compile(backend="ridge")`: tests/python_torch in their default form, with the peers' PyTorch.

Their full form is a stage of its own (./dev wheel --torch).
"""

import unittest

import peers_test
from case import IS_SHORT, ROOT

RUN = """
import unittest
sys.path.insert(0, {tests!r})
suite = unittest.defaultTestLoader.discover({tests!r}, pattern="*_test.py")
result = unittest.TextTestRunner(stream=sys.stdout).run(suite)
sys.exit(not result.wasSuccessful())
"""


@unittest.skipIf(IS_SHORT, "many cases, each of which compiles")
class Compiled(peers_test.Peers):
    test_reads_tensors = test_is_imported_in_any_order = None  # those are run where they stand

    def test_modules(self):
        program = f"import sys; sys.path.append({peers_test.SITE!r})\n"
        program += RUN.format(tests=str(ROOT / "tests" / "python_torch"))
        done = self.python(program, python=peers_test.PYTHON, RIDGE_TEST_SCALE="normal")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
