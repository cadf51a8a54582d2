# SPDX-License-Identifier: MPL-2.0
# Stand-ins for packages that others import in addition to their networks and never call here: loggers, clouds, readers of data sets.
#
# Imported by anchors.py; not run by itself.
import contextlib
import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock


class Finder(MetaPathFinder, Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if any(name == absent or name.startswith(absent + ".") for absent in self.names):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


class Module(types.ModuleType):
    __path__ = []
    __version__ = "0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


@contextlib.contextmanager
def absent(*names):
    """Within it those packages are stand-ins, installed or not. Later imports do not find them: transformers uses what there is."""
    finder = Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, Module)]:
            del sys.modules[name]
