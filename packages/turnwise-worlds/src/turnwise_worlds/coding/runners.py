"""The programs that run a candidate's inside the sandbox.

Both provide what data of this kind takes for granted: names that the harnesses of LiveCodeBench, TACO and APPS import
before every program (`List`, `deque`, `inf`), recursion deeper than Python's limit, and whole numbers of any length.
The names are looked up after the program's own and Python's, so they replace nothing.
"""

from __future__ import annotations

from typing import Any

LONG = "whole number of more than 4300 digits"
"""The only key of an object that represents such a number, which `int` and `json` refuse to read; its value is the
digits."""
MAX_DIGITS = 4300
NAMES = {
    "typing": "Any Callable ClassVar DefaultDict Deque Dict FrozenSet Generator Generic Iterable Iterator List Literal "
    "Mapping NamedTuple Optional Sequence Set Tuple Type TypeVar Union",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable punctuation "
    "whitespace",
    "re": "findall finditer fullmatch search",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "bisect": "bisect_left bisect_right insort insort_left insort_right",
    "copy": "deepcopy",
    "math": "acos asin atan atan2 ceil comb cos degrees dist e exp fabs factorial floor fmod fsum gcd hypot inf "
    "isclose isinf isnan isqrt lcm log log10 log2 nan perm pi prod radians sin sqrt tan tau trunc",
    "random": "choice choices randint randrange sample shuffle uniform",
    "statistics": "mean median mode stdev variance",
    "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile "
    "filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest",
    "functools": "cache cached_property cmp_to_key lru_cache partial reduce total_ordering wraps",
    "operator": "add and_ attrgetter floordiv itemgetter mod mul neg or_ sub truediv xor",
    "datetime": "date timedelta timezone",
    "io": "BytesIO StringIO",
    "fractions": "Fraction",
    "decimal": "Decimal",
}
"""For each module, the names that a program may use without importing them, besides the modules themselves."""
MODULES = (*NAMES, "json", "sys", "time", "numpy", "np")
"""These modules, with `np` as numpy. Only modules that a program's text mentions are imported."""

STACK_BYTES = 64 << 20
"""Stack size of a program's main thread, which suffices for 100,000 calls through `lru_cache`; Python's own 8 MiB end
at 15,000."""

_START = f"""
import builtins, importlib, json, re, resource, sys, types
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)
sys.setrecursionlimit(50000)
resource.setrlimit(resource.RLIMIT_STACK, ({STACK_BYTES}, resource.getrlimit(resource.RLIMIT_STACK)[1]))
sys.dont_write_bytecode = True

def load(name):
    with open("solution.py", "rb") as file:
        source = file.read()
    provided = dict(vars(builtins))
    words = set(re.findall(r"[A-Za-z_]\\w*", source.decode("utf-8", "replace")))
    for home, names in {NAMES!r}.items():
        for each in words.intersection(names.split()):
            provided[each] = getattr(importlib.import_module(home), each, None)
    for each in words.intersection({MODULES!r}):
        try:
            provided[each] = importlib.import_module("numpy" if each == "np" else each)
        except ImportError:
            pass
    module = types.ModuleType(name)
    module.__file__ = "solution.py"
    module.__builtins__ = provided
    sys.modules[name] = module
    try:
        exec(compile(source, "solution.py", "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        if name != "__main__":
            del sys.modules[name]
        raise
    return module
"""

STDIN_RUNNER = f"""{_START}
sys.path.insert(0, "")
load("__main__")
"""
"""Runs the program as the main one, with the standard input given to the process."""

WRITER = """
import json

def write(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return in_order(value)
    if hasattr(value, "keys") and hasattr(value, "__getitem__"):
        return dict(value)
    if hasattr(value, "__iter__") and not isinstance(value, (bytes, bytearray)):
        return list(value)
    if hasattr(value, "__index__"):
        return int(value)
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError(type(value).__name__)

def in_order(values):
    try:
        if any(isinstance(each, (set, frozenset)) for each in values):
            raise TypeError
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda each: json.dumps(each, default=write))
"""
"""Defines `write`, which converts a value that JSON lacks to one that it has."""

CALL_RUNNER = f"""{_START}
import signal
report, sys.stdout = sys.stdout, sys.stderr
sys.path.insert(0, "")

def read_long(value):
    return int(value[{LONG!r}]) if len(value) == 1 and {LONG!r} in value else value

def read_keys(value):
    whole = isinstance(value, dict) and value and all(re.fullmatch("-?[0-9]+", key) for key in value)
    return {{int(key): each for key, each in value.items()}} if whole else value

{WRITER}
request = json.load(sys.stdin, object_hook=read_long)
for number, arguments in enumerate(request["calls"]):
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    try:
        if "whole_keys" in request["rules"]:
            arguments = [read_keys(each) for each in arguments]
        module = sys.modules.get("solution") or load("solution")
        entry = request["entry"]
        kind = vars(module).get("Solution")
        home = kind() if hasattr(kind, entry) or entry not in vars(module) and kind else module
        value = getattr(home, entry)(*arguments)
        if value is None and arguments and "in_place" in request["rules"]:
            value = arguments[0]
        try:
            line = json.dumps([number, ["gave", value]], default=write)
        except (TypeError, ValueError):
            line = json.dumps([number, ["other", repr(value)[:200]]])
    except BaseException as error:
        line = json.dumps([number, ["raised", type(error).__name__]])
    print(line, file=report, flush=True)
signal.setitimer(signal.ITIMER_REAL, request["seconds"])
"""
"""Reports one line per call, so that an early end of the process leaves the remaining calls without an outcome. A
timer, restarted with every call, ends the process; a program that stops the timer still has the limits of the process.
A method of a class `Solution` counts as the function, as in LiveCodeBench; a program's output goes to standard error.
Values that JSON lacks are converted: sets in ascending order, deques, iterators and arrays as lists, numbers of numpy,
`decimal` and `fractions` as numbers. "other" is the text of a value that JSON cannot hold."""


def read_whole(text: str) -> Any:
    """Read a whole number from a JSON text; returns the object of `LONG` for one that `int` refuses to read."""
    return int(text) if len(text) <= MAX_DIGITS else {LONG: text}
