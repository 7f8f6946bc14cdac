"""Runs models, says why a program is slow, and makes it faster with proof.

    session = ridge.Session("model.onnx")
    outputs = session.run({"x": array})
"""

from ._ridge import DataSpec, Session, UserError
from ._ridge import version as __version__
from ._verbs import doctor, optimize

__all__ = ["DataSpec", "Session", "UserError", "__version__", "doctor", "optimize"]

for _public in (DataSpec, Session, UserError):
    _public.__module__ = __name__  # not that of the extension
