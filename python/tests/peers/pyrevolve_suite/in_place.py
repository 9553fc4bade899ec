"""A pytest plugin: whoever imports pyrevolve gets the drop-in.

The tests of pyrevolve also import names that the drop-in does not have; those exist so that their
modules can be imported, and the tests that use them are not run.
"""

import sys
from types import ModuleType

from unspool.interop import pyrevolve

_LEFT_OUT = {
    "compression": {
        "compressors_available": [None],
        "compressors": {},
        "decompressors": {},
        "init_compression": None,
    },
    "storage": {"BytesStorage": None},
}

sys.modules["pyrevolve"] = pyrevolve
for _name, _members in _LEFT_OUT.items():
    _module = ModuleType(f"pyrevolve.{_name}")
    vars(_module).update(_members)
    sys.modules[_module.__name__] = _module
