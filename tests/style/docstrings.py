"""The docstrings of modules that users call, as a function that returns what is wrong with them.

They have numpydoc's sections: Parameters with every parameter, Returns where something is returned, Raises with every exception
that the function, or a function of these modules that it calls, raises by name. Classes that are made with arguments, and those
with fields, describe these in Parameters or Attributes. Properties need a sentence only.
"""
import ast
import re

SECTION = re.compile(r"^(\w[\w ]*)\n(-+)\n", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sections(text):
    """Returns the sections of a docstring: by their names, the description of each entry by its name."""
    found = {}
    places = [match for match in SECTION.finditer(text) if len(match[1]) == len(match[2])]
    for place, after in zip(places, [*places[1:], None]):
        entries, current = {}, []
        for line in text[place.end():after.start() if after else None].rstrip().splitlines():
            if line and not line.startswith(" "):
                current = [name.strip() for name in line.split(":")[0].split(",")]
                entries.update(dict.fromkeys(current, ""))
            else:
                entries.update({name: f"{entries[name]} {line.strip()}".strip() for name in current})
        found[place[1]] = entries
    return found


def parameters(function):
    all_of = function.args
    names = [arg.arg for arg in (*all_of.posonlyargs, *all_of.args, *all_of.kwonlyargs) if arg.arg not in ("self", "cls")]
    return names + [f"{stars}{arg.arg}" for stars, arg in (("*", all_of.vararg), ("**", all_of.kwarg)) if arg is not None]


def own_nodes(function):
    """The nodes of a function without those of functions within it."""
    waiting = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*Function.__args__, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def returns_something(function):
    if function.returns is not None:
        return not (isinstance(function.returns, ast.Constant) and function.returns.value is None)
    return any(isinstance(node, ast.Return) and node.value is not None for node in own_nodes(function))


def last_name(node):
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def is_abstract(function):
    last = function.body[-1]
    return isinstance(last, ast.Raise) and last_name(last.exc) == "NotImplementedError"


def functions_of(trees):
    """Yields (class or "", name) and the node of every function. Abstract ones are left out."""
    for tree in trees:
        for scope in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
            for node in scope.body:
                if isinstance(node, Function) and not is_abstract(node):
                    yield (getattr(scope, "name", ""), node.name), node


def raised_by(trees):
    """Returns what each function raises by name, itself or by those of these modules that it calls."""
    raised, calls = {}, {}
    for key, function in functions_of(trees):
        nodes = list(own_nodes(function))
        raised[key] = {last_name(node.exc.func) for node in nodes
                       if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)} - {None}
        calls[key] = set()
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                calls[key].add(("", node.func.id))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = last_name(node.func.value) or ""
                if of == "self":
                    calls[key].add((key[0], node.func.attr))
                elif of.startswith("_"):  # one of these modules
                    calls[key].add(("", node.func.attr))
    # A method that a class has not is that of another one, which derives from it or from which it derives.
    for called in calls.values():
        for of, name in [one for one in called if one[0] and one not in raised]:
            called |= {key for key in raised if key[0] and key[1] == name}
    changed = True
    while changed:
        before = sum(map(len, raised.values()))
        for key, called in calls.items():
            raised[key] |= set().union(*(raised.get(one, set()) for one in called))
        changed = sum(map(len, raised.values())) != before
    return raised


def is_property(function):
    return any("property" in (last_name(one) or "") for one in function.decorator_list)


def entry_problems(where, found):
    for section, entries in found.items():
        for name, description in entries.items():
            if not description.endswith("."):
                yield f"{where}: {section}: {name} has no sentence that says what it is"


def callable_problems(where, text, names, raised, returns):
    found = sections(text)
    described = set(found.get("Parameters", {}))
    if described != set(names):
        missing, unknown = sorted(set(names) - described), sorted(described - set(names))
        yield f"{where}: Parameters: missing {missing}, not in the signature {unknown}"
    if returns and "Returns" not in found:
        yield f"{where}: no section Returns"
    if not returns and "Returns" in found:
        yield f"{where}: Returns, but it returns nothing"
    missing = sorted(raised - {name.rsplit(".")[-1] for name in found.get("Raises", {})})
    if missing:
        yield f"{where}: Raises: missing {missing}"
    yield from entry_problems(where, found)


def function_problems(where, function, raised):
    text = ast.get_docstring(function)
    if text is None:
        yield f"{where}: no docstring"
    elif not is_property(function):
        names = parameters(function)
        if "timeout" not in names:
            raised = raised - {"TimeoutError"}
        yield from callable_problems(where, text, names, raised, returns_something(function))


def class_problems(where, defined, raised):
    text = ast.get_docstring(defined)
    if text is None:
        yield f"{where}: no docstring"
        return
    functions = {node.name: node for node in defined.body if isinstance(node, Function)}
    found = sections(text)
    if any(last_name(one.func if isinstance(one, ast.Call) else one) == "dataclass" for one in defined.decorator_list):
        fields = {node.target.id for node in defined.body if isinstance(node, ast.AnnAssign)
                  and isinstance(node.target, ast.Name) and not node.target.id.startswith("_")}
        described = set(found.get("Parameters", {})) | set(found.get("Attributes", {}))
        if described != fields:
            yield f"{where}: missing {sorted(fields - described)}, no field {sorted(described - fields)}"
        missing = sorted(raised.get((defined.name, "__post_init__"), set()) - set(found.get("Raises", {})))
        if missing:
            yield f"{where}: Raises: missing {missing}"
        yield from entry_problems(where, found)
    elif "__init__" in functions and not defined.name.endswith("Error"):
        yield from callable_problems(where, text, parameters(functions["__init__"]), raised[defined.name, "__init__"], False)
    for function in functions.values():
        if not function.name.startswith("_") and not is_abstract(function):
            yield from function_problems(f"{where}.{function.name}", function, raised[defined.name, function.name])


def docstring_problems(sources, only=None):
    """sources: the texts of modules by their names. only: the public names that count, for modules that have others, too."""
    trees = {name: ast.parse(text) for name, text in sources.items()}
    raised = raised_by(trees.values())
    found = []
    for module, tree in trees.items():
        for node in tree.body:
            if not isinstance(node, (*Function.__args__, ast.ClassDef)) or node.name.startswith("_"):
                continue
            if module in (only or {}) and node.name not in only[module]:
                continue
            where = f"{module}.{node.name}"
            found += class_problems(where, node, raised) if isinstance(node, ast.ClassDef) else function_problems(
                where, node, raised["", node.name])
    return found
