"""The functions of Python files: reads {path: text} as JSON, writes {path: [[name, line, lines]]}.

Lines are counted from the `def` to the last line of the body, both included; what cannot be
parsed is reported as a string instead of a list.
"""

import ast
import json
import sys

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions(text):
    """Name, first line and number of lines of every function in `text`."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    found = [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]
    return [[node.name, node.lineno, node.end_lineno - node.lineno + 1] for node in found]


if __name__ == "__main__":
    files = json.load(sys.stdin)
    json.dump({path: functions(text) for path, text in files.items()}, sys.stdout)
