# The side of --hook that is Python: runs in the interpreter that plugins/hook_python.c embeds, which gives it two
# functions, core_order(earlier, later) and core_dlpack(...), and calls Runner. specpipe(7), HOOKS, is its manual.
import re
import sys
import threading
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

    __slots__ = ("name", "shape", "strides", "dtype", "device", "stream", "writable", "_address",
                 "__cuda_array_interface__")

    def __init__(self, name, address, dtype, shape, strides, writable, device, stream):
        self.name, self.shape, self.strides, self.dtype = name, shape, strides, numpy.dtype(dtype)
        self.device, self.stream, self.writable = device, stream, writable
        self._address = address
        self.__cuda_array_interface__ = {
            "version": 3, "shape": shape, "strides": strides, "typestr": self.dtype.str,
            "data": (address, not writable), "stream": stream or 1}

    def __dlpack_device__(self):
        return DLPACK_CUDA, self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"{self.name}: is lent where it is, on device {self.device}")
        # 1 is the default stream, -1 means that the consumer looks after the order itself
        later = 1 if stream is None else stream
        if later not in (-1, self.stream) and not core_order(self.stream or 1, later):
            raise BufferError(f"{self.name}: its stream and yours cannot be put in order")
        size = self.dtype.itemsize
        code = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        strides = self.strides and tuple(s // size for s in self.strides)
        return core_dlpack(self._address, code, 8 * size, self.shape, strides, self.device)

    def __repr__(self):
        return f"<{self.name}: {self.dtype} {self.shape} on cuda:{self.device}>"


class Memory:
    """What NumPy makes an array of without a copy."""

    __slots__ = ("__array_interface__",)


class Step:
    """What a hook is called with."""

    __slots__ = ("stage", "number", "total", "time", "device", "stream", "arrays")

    def __getitem__(self, name):
        return self.arrays[name]

    @property
    def last(self):
        return self.number == self.total


def wrap(name, address, code, shape, strides, writable, device, stream):
    """An array of the stage for the hook."""
    if device >= 0:
        return Array(name, address, TYPES[code], shape, strides, writable, device, stream)
    memory = Memory()
    memory.__array_interface__ = {"version": 3, "shape": shape, "strides": strides,
                                  "typestr": numpy.dtype(TYPES[code]).str, "data": (address, not writable)}
    return numpy.asarray(memory)


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
        self.here = threading.local()  # current streams are a thread's own

    def place(self):
        here = self.here
        if not hasattr(here, "using"):
            here.device, here.stream, here.using = -1, 0, set()
        return here

    def failed(self, x):
        tb = x.__traceback__
        while tb and tb.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        traceback.print_exception(type(x), x, tb)
        return f"{type(x).__name__}: {x}"

    def open(self, path, source, function):
        sys.argv = [path]
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

    def step(self, stage, number, total, time, device, stream, arrays):
        s = Step()
        s.stage, s.number, s.total, s.time, s.arrays, s.stream = stage, number, total, time, arrays, stream
        s.device = "cpu" if device < 0 else f"cuda:{device}"
        try:
            if device < 0:
                out = self.function(s)
            else:
                out = self.call(s, device, stream)
            if out is not None:
                self.keep(out)
        except BaseException as x:
            return self.failed(x)
        return None

    def call(self, s, device, stream):
        here = self.place()
        if device != here.device or stream != here.stream:
            here.using.clear()
            here.device, here.stream = device, stream
        if len(here.using) < len(FRAMEWORKS):
            self.arrive(here)
        if here.using:
            return self.function(s)
        # whatever the hook uses, or imports now, works on the default stream unless it is told otherwise
        core_order(stream or 1, 1)
        out = self.function(s)
        core_order(1, stream or 1)
        return out

    def arrive(self, here):
        for name, (use, _) in FRAMEWORKS.items():
            if name not in here.using and name in sys.modules:
                use(sys.modules[name], here.device, here.stream)
                here.using.add(name)

    def keep(self, out):
        if not isinstance(out, dict):
            raise TypeError(f"a hook returns None or a dict of arrays, not {type(out).__name__}")
        for name, value in out.items():
            if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", name):
                raise ValueError(f"{name!r} cannot name a dataset: letters, digits, _ . and - can, at most 63")
            self.results[name] = on_host(name, value)

    def leave(self):
        here = self.place()
        for name in here.using:
            FRAMEWORKS[name][1](sys.modules[name], here.device)
        here.using.clear()
        here.device, here.stream = -1, 0

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
