/* Checks arrays of a CUDA device that a hook in Python gets, without a device: addresses of this program's memory stand
 * for device addresses, and a function records the ordering of streams. */
#include <string.h>

#include "check.h"
#include "hook_python.h"

/* Descriptions by both protocols, versions of DLPack, order of streams, views made once. */
static const char source[] =
    "import ctypes\n"
    "import numpy\n"
    "class Tensor(ctypes.Structure):\n"
    "    _fields_ = [('data', ctypes.c_void_p), ('device_type', ctypes.c_int32), ('device_id', ctypes.c_int32),\n"
    "                ('ndim', ctypes.c_int32), ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8),\n"
    "                ('lanes', ctypes.c_uint16), ('shape', ctypes.POINTER(ctypes.c_int64)),\n"
    "                ('strides', ctypes.POINTER(ctypes.c_int64)), ('byte_offset', ctypes.c_uint64)]\n"
    "class Old(ctypes.Structure):\n"
    "    _fields_ = [('t', Tensor), ('context', ctypes.c_void_p), ('deleter', ctypes.c_void_p)]\n"
    "class Now(ctypes.Structure):\n"
    "    _fields_ = [('major', ctypes.c_uint32), ('minor', ctypes.c_uint32), ('context', ctypes.c_void_p),\n"
    "                ('deleter', ctypes.c_void_p), ('flags', ctypes.c_uint64), ('t', Tensor)]\n"
    "pointer = ctypes.pythonapi.PyCapsule_GetPointer\n"
    "pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]\n"
    "valid = ctypes.pythonapi.PyCapsule_IsValid\n"
    "valid.argtypes = [ctypes.py_object, ctypes.c_char_p]\n"
    "def opened(capsule, kind, name):\n"
    "    assert valid(capsule, name)\n"
    "    return kind.from_address(pointer(capsule, name))\n"
    "def same(t, a, shape, strides):\n"
    "    assert (t.data, t.device_type, t.device_id, t.ndim) == (a['data'][0], 2, 3, len(shape))\n"
    "    assert (t.code, t.bits, t.lanes, t.byte_offset) == (2, 64, 1, 0)\n"
    "    assert tuple(t.shape[:t.ndim]) == shape\n"
    "    assert tuple(t.strides[:t.ndim]) == strides if strides else not t.strides\n"
    "def refused(error, f, *args, **keys):\n"
    "    try:\n"
    "        f(*args, **keys)\n"
    "    except error:\n"
    "        return\n"
    "    raise AssertionError(f'{f} {keys}')\n"
    "made = []\n"
    "def make(array):\n"
    "    made.append(array.name)\n"
    "    return len(made)\n"
    "seen = None\n"
    "def hook(step):\n"
    "    global seen\n"
    "    u, v = step['u'], step['v']\n"
    "    assert (step.device, step.stream, u.device, u.stream) == ('cuda:3', 0x5000, 3, 0x5000)\n"
    "    if step.number == 1:\n"
    "        return\n"
    "    if step.number == 2:\n"
    "        a, b = u.__cuda_array_interface__, v.__cuda_array_interface__\n"
    "        assert (a['version'], a['shape'], a['strides'], a['typestr'], a['stream']) == (3, (4, 5), None, '<f8', "
    "0x5000)\n"
    "        assert a['data'][1] is True and b['data'][1] is False and b['strides'] == (80, 16)\n"
    "        assert u.__dlpack_device__() == (2, 3)\n"
    "        same(opened(u.__dlpack__(stream=0x5000), Old, b'dltensor').t, a, (4, 5), None)\n"
    "        x = opened(u.__dlpack__(stream=-1, max_version=(1, 1)), Now, b'dltensor_versioned')\n"
    "        assert (x.major, x.minor, x.flags) == (1, 0, 1)\n"
    "        same(x.t, a, (4, 5), None)\n"
    "        capsule = v.__dlpack__(stream=-1, max_version=(1, 0), dl_device=(2, 3), copy=False)\n"
    "        x = opened(capsule, Now, b'dltensor_versioned')\n"
    "        assert x.flags == 0\n"
    "        same(x.t, b, (3, 2), (10, 2))\n"
    "        same(opened(v.__dlpack__(stream=-1, max_version=(0, 8)), Old, b'dltensor').t, b, (3, 2), (10, 2))\n"
    "        refused(BufferError, u.__dlpack__, copy=True)\n"
    "        refused(BufferError, u.__dlpack__, dl_device=(1, 0))\n"
    "        refused(TypeError, u.__dlpack__, 0x5000)\n"
    "    if step.number == 3:\n"
    "        u.__dlpack__(stream=0x6000)\n"
    "        u.__dlpack__(stream=0x6000)\n"
    "        v.__dlpack__()\n"
    "    if step.number >= 4:\n"
    "        assert step.view('u', make) == 1 and step.view('u', make) == 1 and step.view('v', make) == 2\n"
    "    if step.number == 5:\n"
    "        seen = step\n"
    "    if step.number == 6:\n"
    "        assert seen is not step and seen.number == 5\n"
    "def finish():\n"
    "    assert made == ['u', 'v'], made\n"
    "hook.writable = True\n";

enum { STREAM = 0x5000 };

/* Pairs of streams that were put in order. */
static size_t norder;
static uintptr_t earlier_of[16], later_of[16];

static int note_order(void *earlier, void *later)
{
    if (norder < 16) {
        earlier_of[norder] = (uintptr_t)earlier;
        later_of[norder] = (uintptr_t)later;
    }
    norder++;
    return 0;
}

static void check_order(size_t step, size_t n, const uintptr_t (*pair)[2])
{
    CHECK(norder == n, "step %zu: %zu pairs of streams were put in order, not %zu", step, norder, n);
    for (size_t i = 0; i < n && i < norder; i++)
        CHECK(earlier_of[i] == pair[i][0] && later_of[i] == pair[i][1], "step %zu, pair %zu: %#lx, %#lx", step, i,
              (unsigned long)earlier_of[i], (unsigned long)later_of[i]);
    norder = 0;
}

int main(void)
{
    /* what the default stream, or another one, is used for waits for the stage, and the stage for that */
    static const uintptr_t by_default[][2] = {{STREAM, 1}, {1, STREAM}};
    static const uintptr_t others[][2] = {{STREAM, 0x6000}, {STREAM, 1}, {0x6000, STREAM}, {1, STREAM}};
    double memory[40];
    spx_hook hook;
    spx_hook_results results = {0};
    spx_err e = {0};
    choose_python("numpy");
    const spx_hook_array array[] = {
        {.name = "u", .data = memory, .type = SPX_HOOK_FLOAT64, .ndim = 2, .shape = {4, 5}},
        {.name = "v", memory + 1, SPX_HOOK_FLOAT64, 2, 1, {3, 2}, {80, 16}},
    };
    const spx_hook_step_info step = {
        .stage = "test", .total = 6, .at = {3, (void *)(uintptr_t)STREAM, note_order}, .narray = 2, .array = array};
    spx_status st = open_text(&hook, source, &e);
    for (size_t k = 1; k <= 6 && st == SPX_OK; k++) {
        st = spx_hook_step(&hook, &step, &e);
        if (k == 1) /* nothing was touched */
            check_order(k, 0, NULL);
        else if (k == 3)
            check_order(k, 4, others);
        else
            check_order(k, 2, by_default);
    }
    spx_hook_release(&hook);
    spx_hook_release(&hook); /* nothing is left */
    if (st == SPX_OK)
        st = spx_hook_finish(&hook, &results, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    spx_hook_results_free(&results);
    spx_hook_close(&hook);
    return failures != 0;
}
