"""Facts about Python files: reads {path: text} as JSON, writes {path: facts}.

The facts of a file are `functions`, a list of [name, line, lines, parameters], where lines are
counted from the `def` to the last line of the body and a method's name has its class before a dot;
`imports`, a list of [module, names], with the dots of relative imports and those within
functions, but not those for type checkers alone; and `all`, what `__all__` lists, or null. The
facts of a file that cannot be parsed are a string that says why.
"""

import ast
import json
import sys

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def facts(text):
    """What is said about one file."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    return {
        "functions": list(functions(tree, "")),
        "imports": list(imports(tree)),
        "all": listed(tree),
    }


def functions(node, owner):
    """Every function below `node`, those within classes with the name of the class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTION):
            lines = child.end_lineno - child.lineno + 1
            yield [owner + child.name, child.lineno, lines, parameters(child, bool(owner))]
            yield from functions(child, "")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, child.name + ".")
        else:
            yield from functions(child, owner)


def parameters(function, is_method):
    """How many parameters a caller sees: `self` and `cls` are not among them."""
    given = function.args
    named = given.posonlyargs + given.args
    own = is_method and named and named[0].arg in ("self", "cls")
    open_ended = (given.vararg is not None) + (given.kwarg is not None)
    return len(named) + len(given.kwonlyargs) + open_ended - bool(own)


def imports(node):
    """The imports that run, wherever they stand."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ([name.name, []] for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = "." * child.level + (child.module or "")
            yield [module, [name.name for name in child.names]]
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from imports(ast.Module([other], []))
        else:
            yield from imports(child)


def listed(tree):
    """The names of `__all__`, where it is a plain list."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


if __name__ == "__main__":
    files = json.load(sys.stdin)
    json.dump({path: facts(text) for path, text in files.items()}, sys.stdout)
