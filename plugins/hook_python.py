# Provides the Python side of --hook: runs in the interpreter that plugins/hook_python.c embeds, which gives it two
# functions, core_order(earlier, later) and core_dlpack(...), and calls Runner. specpipe(7), HOOKS, is its manual.
import os
import re
import sys
import traceback
import types

sys.stdout = sys.stderr  # standard output may be the product

import numpy

TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")  # spx_hook_type
DLPACK_CUDA = 2
MOST_DIMENSIONS = 8
__file__ = sys._getframe().f_code.co_filename


class Array:
    """An array of the stage in the memory of a CUDA device; valid until the hook returns."""

    __slots__ = ("name", "shape", "strides", "dtype", "device", "stream", "writable", "_address", "_interface",
                 "_runner")

    def __init__(self, name, address, dtype, shape, strides, writable, runner):
        self.name, self.shape, self.strides, self.dtype = name, shape, strides, numpy.dtype(dtype)
        self.device, self.stream, self.writable = runner.device, runner.stream, writable
        self._address, self._runner = address, runner
        self._interface = {
            "version": 3, "shape": shape, "strides": strides, "typestr": self.dtype.str,
            "data": (address, not writable), "stream": self.stream or 1}

    @property
    def __cuda_array_interface__(self):
        self._runner.lend()
        return self._interface

    def __dlpack_device__(self):
        return DLPACK_CUDA, self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, (DLPACK_CUDA, self.device)):
            raise BufferError(f"{self.name}: is lent where it is, on device {self.device}")
        # 1 is the default stream, -1 means that the consumer looks after the order itself
        later = stream or 1
        if later != -1 and later != self.stream and not self._runner.lend_to(later):
            raise BufferError(f"{self.name}: its stream and yours cannot be put in order")
        size = self.dtype.itemsize
        code = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        strides = self.strides and tuple(s // size for s in self.strides)
        versioned = max_version is not None and max_version[0] >= 1
        return core_dlpack(self._address, code, 8 * size, self.shape, strides, self.device, versioned,
                           not self.writable)

    def __repr__(self):
        return f"<{self.name}: {self.dtype} {self.shape} on cuda:{self.device}>"


class Memory:
    """What NumPy makes an array of without a copy."""

    __slots__ = ("__array_interface__",)


class Step:
    """What a hook is called with."""

    __slots__ = ("stage", "number", "total", "time", "device", "stream", "arrays", "_runner")

    def __getitem__(self, name):
        try:
            return self.arrays[name]
        except KeyError:
            raise KeyError(f"no array {name!r}: there are {', '.join(self.arrays)}") from None

    @property
    def last(self):
        return self.number == self.total

    def view(self, name, make):
        """make(self[name]), made once for an array that is lent again and again."""
        return self._runner.view(self.arrays[name], make)


def cupy_use(module, device, stream):
    module.cuda.Device(device).use()
    module.cuda.ExternalStream(stream, device).use()


def cupy_leave(module, device):
    module.cuda.Stream.null.use()


def torch_use(module, device, stream):
    module.cuda.set_stream(module.cuda.ExternalStream(stream, device=device))


def torch_leave(module, device):
    module.cuda.set_stream(module.cuda.default_stream(device))


# Frameworks that have a current stream: theirs becomes the stage's, so that the order holds without anybody waiting.
FRAMEWORKS = {"cupy": (cupy_use, cupy_leave), "torch": (torch_use, torch_leave)}


def on_host(name, value):
    """A copy of what a hook returned, as an array that a product can hold."""
    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu().numpy()
    elif hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):  # CuPy
        value = value.get()
    a = numpy.atleast_1d(numpy.array(value, copy=True, order="C"))
    kind, size = a.dtype.kind, a.dtype.itemsize
    if kind == "b":
        a = a.astype("u1")
    elif kind == "f" and size not in (4, 8):
        a = a.astype("f4" if size < 4 else "f8")
    elif kind not in "iuf":
        raise TypeError(f"'{name}' holds {a.dtype}: products hold real numbers")
    if a.ndim > MOST_DIMENSIONS:
        raise TypeError(f"'{name}' has {a.ndim} dimensions, more than {MOST_DIMENSIONS}")
    return numpy.ascontiguousarray(a, a.dtype.newbyteorder("="))


class Runner:
    """The hook. Methods give None, or what went wrong after its traceback was printed."""

    def __init__(self):
        self.results, self.given = {}, {}
        self.function = self.last = None
        self.writable = False
        # where the arrays are, the frameworks whose current stream is the stage's, other streams that have to be waited
        # for, views of arrays
        self.device, self.stream, self.using, self.lent, self.views = -1, 0, set(), [], {}
        self.modules = 0

    def failed(self, x):
        tb = x.__traceback__
        while tb and tb.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        traceback.print_exception(type(x), x, tb)
        return f"{type(x).__name__}: {x}"

    def open(self, path, source, function):
        sys.argv = [path]
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # as for a program: modules beside it are found
        module = types.ModuleType("specpipe_hook")
        module.__file__ = path
        sys.modules["specpipe_hook"] = module
        try:
            exec(compile(source, path, "exec"), module.__dict__)
        except BaseException as x:  # also what sys.exit() raises: a hook does not end the program by itself
            return self.failed(x)
        self.function, self.last = getattr(module, function, None), getattr(module, "finish", None)
        self.writable = bool(getattr(self.function, "writable", False))
        return None

    def make_step(self, stage, total, arrays):
        s = Step()
        s.stage, s.total, s.stream, s._runner = stage, total, self.stream, self
        s.device = "cpu" if self.device < 0 else f"cuda:{self.device}"
        s.arrays = {a[0]: self.wrap(*a) for a in arrays}
        return s

    def again(self, old):
        """A step with the same arrays."""
        s = Step()
        s.stage, s.total, s.device, s.stream, s._runner = old.stage, old.total, old.device, old.stream, self
        s.arrays = dict(old.arrays)
        return s

    def wrap(self, name, address, code, shape, strides, writable):
        """An array of the stage for the hook."""
        strides = strides or None
        if self.device >= 0:
            return Array(name, address, TYPES[code], shape, strides, bool(writable), self)
        memory = Memory()
        memory.__array_interface__ = {"version": 3, "shape": shape, "strides": strides,
                                      "typestr": numpy.dtype(TYPES[code]).str, "data": (address, not writable)}
        return numpy.asarray(memory)

    def step(self, s):
        try:
            out = self.function(s) if self.device < 0 else self.on_device(s)
            if out is not None:
                self.keep(out)
        except BaseException as x:
            return self.failed(x)
        return None

    def on_device(self, s):
        if len(sys.modules) != self.modules:
            self.look()
        try:
            return self.function(s)
        finally:
            for stream in self.lent:
                core_order(stream, self.stream or 1)
            self.lent.clear()

    def look(self):
        """Uses the frameworks that have been imported."""
        for name, (use, _) in FRAMEWORKS.items():
            if name not in self.using and name in sys.modules:
                use(sys.modules[name], self.device, self.stream)
                self.using.add(name)
        self.modules = len(sys.modules)

    def lend(self):
        """An array is taken by somebody who does not say where: on the default stream, unless all that is known has
        the stage's. A framework that is imported by the hook itself has it from the next step on."""
        if not self.using or len(sys.modules) != self.modules:
            self.lend_to(1)

    def lend_to(self, stream):
        if stream in self.lent:
            return True
        self.lent.append(stream)
        return core_order(self.stream or 1, stream)

    def view(self, array, make):
        key = id(array), make
        found = self.views.get(key)
        if found is None:
            # with the array, so that no other one gets its id
            found = self.views[key] = make(array), array
        elif self.device >= 0:
            self.lend()
        return found[0]

    def keep(self, out):
        if not isinstance(out, dict):
            raise TypeError(f"a hook returns None or a dict of arrays, not {type(out).__name__}")
        for name, value in out.items():
            if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", name):
                raise ValueError(f"{name!r} cannot name a dataset: letters, digits, _ . and - can, at most 63")
            self.results[name] = on_host(name, value)

    def enter(self, device, stream):
        self.device, self.stream, self.modules = device, stream, 0

    def leave(self):
        self.views.clear()
        for name in self.using:
            FRAMEWORKS[name][1](sys.modules[name], self.device)
        self.using.clear()

    def finish(self):
        """(what went wrong or None, [(name, type, shape, address)])"""
        failed = None
        if callable(self.last):
            try:
                out = self.last()
                if out is not None:
                    self.keep(out)
            except BaseException as x:
                failed = self.failed(x)
        # the arrays live until the next product
        self.given, self.results = self.results, {}
        return failed, [(name, TYPES.index(a.dtype.str[1:]), a.shape, a.__array_interface__["data"][0])
                        for name, a in sorted(self.given.items())]
