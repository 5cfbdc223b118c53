import ast
import pathlib

import pytest

import remcaps

FOLDER = pathlib.Path(__file__).parents[1] / "remcaps"
MODULES = ["convert", "data", "functional", "network", "nn", "optim", "parse_trees", "pruning",
           "training"]


def arguments(function):
    """As text, with defaults, without types."""
    for given in ast.walk(function.args):
        if isinstance(given, ast.arg):
            given.annotation = None
    return ast.unparse(function.args)


def functions(tree):
    """name -> arguments, of functions and methods; of the first where there are overloads."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, arguments(node))
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found[f"{node.name}.{part.name}"] = arguments(part)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_stub_has_the_signatures_of_its_module(module):
    stub = functions(ast.parse((FOLDER / f"{module}.pyi").read_text()))
    code = functions(ast.parse((FOLDER / f"{module}.py").read_text()))
    for name, parameters in stub.items():
        assert code[name] == parameters, name
    public = {n for n in code if not any(p.startswith("_") or p == "extra_repr" for p in n.split("."))}
    assert public <= set(stub)


def test_the_package_stub_names_everything():
    tree = ast.parse((FOLDER / "__init__.pyi").read_text())
    assert remcaps.__version__.count(".") == 2
    named = {a.asname for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names} - {None}
    named |= {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    assert named == set(remcaps.__all__)
    for name in remcaps.__all__:
        assert hasattr(remcaps, name)
