"""What griffe does not read by itself in the stub and the docstrings of the package.

In a stub, overloads are the whole definition of a method and `__new__` says what a class takes.
Griffe expects an implementation after the overloads, and an `__init__`; without them the method and
the arguments would be missing in the reference. Our docstrings also describe several arguments in
one item, and name exceptions without a description where there is nothing to add.
"""

import re

import griffe

# The lines of a docstring after the title of one of these sections, up to the next one.
SECTION = re.compile(r"^(Arguments|Raises):\n((?: .*(?:\n|$)|\n)+)", re.MULTILINE)
# Several names with one description: "    device, host: as for `plan`."
GROUP = re.compile(r"^    (\w+(?:,\s+\w+)+):\s+(.*)", re.DOTALL)


class Stubs(griffe.Extension):
    """Completes each class and each docstring when griffe has read it."""

    def on_class_members(self, *, node, cls, agent, **kwargs):
        """Adds the methods that have overloads only, and `__init__` where there is `__new__`."""
        for name, overloads in cls.overloads.items():
            if overloads and name not in cls.members:
                cls.set_member(name, _method(cls, name, overloads))
        if "__new__" in cls.members and "__init__" not in cls.members:
            cls.set_member("__init__", _method(cls, "__init__", [cls.members["__new__"]]))
        cls.members = dict(sorted(cls.members.items(), key=lambda item: item[1].lineno or 0))

    def on_instance(self, *, node, obj, agent, **kwargs):
        """Gives every argument and every exception of a docstring an item of its own."""
        if obj.docstring:
            obj.docstring.value = SECTION.sub(_section, obj.docstring.value)


def _method(cls, name, overloads):
    """A method that is defined by the overload with the docstring and has the others beside it."""
    documented = next((one for one in overloads if one.docstring), overloads[-1])
    method = griffe.Function(
        name,
        parameters=documented.parameters,
        returns=documented.returns,
        docstring=documented.docstring,
        lineno=documented.lineno,
        endlineno=documented.endlineno,
        parent=cls,
    )
    method.overloads = [one for one in overloads if one is not documented]
    return method


def _section(found):
    title, items = found.group(1), re.split(r"\n(?=    \S)", found.group(2).rstrip("\n"))
    split = _exceptions if title == "Raises" else _arguments
    return f"{title}:\n" + "\n".join(text for item in items for text in split(item)) + "\n\n"


def _arguments(item):
    """The item, or one for each of its names."""
    group = GROUP.match(item)
    if not group:
        return [item]
    names, text = group.groups()
    return [f"    {name.strip()}: {text}" for name in names.split(",")]


def _exceptions(item):
    """The item, with `also: ` before names without a description."""
    return [item if ":" in item else f"    also: {item.strip()}"]
