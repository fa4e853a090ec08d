/* Checks a hook in Python, on the CPU or on the device $SPX_TEST_DEVICE: its arrays are the operation's memory, nothing
 * is copied to the host for it, and the snapshots that it gathers have the decomposition of h5svd's kernel. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"
#include "hook_python.h"

/* NumPy on the CPU; CuPy, and PyTorch where it is, on a GPU. */
static const char source[] = "import importlib.util\n"
                             "def have(name):\n"
                             "    return importlib.util.find_spec(name) is not None\n"
                             "rows = None\n"
                             "def hook(step):\n"
                             "    global rows, xp\n"
                             "    u = step['u']\n"
                             "    if rows is None:\n"
                             "        xp = __import__('numpy' if step.device == 'cpu' else 'cupy')\n"
                             "        rows = xp.empty((step.total,) + u.shape)\n"
                             "    view = xp.asarray(u)\n"
                             "    if step.device == 'cpu':\n"
                             "        assert not view.flags.writeable and view.base is not None\n"
                             "        assert view.__array_interface__['data'] == u.__array_interface__['data']\n"
                             "    elif step.number < 20:\n"
                             "        i = u.__cuda_array_interface__\n"
                             "        assert i['version'] == 3 and i['stream'] == step.stream and i['data'][1]\n"
                             "        assert view.data.ptr == i['data'][0] and view.device.id == u.device\n"
                             "        assert xp.cuda.get_current_stream().ptr == step.stream or step.number == 1\n"
                             "        assert xp.from_dlpack(u).data.ptr == i['data'][0]\n"
                             "        if have('torch'):\n"
                             "            import torch\n"
                             "            t = torch.from_dlpack(u)\n"
                             "            assert t.data_ptr() == i['data'][0] and t.device.index == u.device\n"
                             "    rows[step.number - 1] = view\n"
                             "def finish():\n"
                             "    s = xp.linalg.svd(rows, compute_uv=False)\n"
                             "    return {'s': s[:6], 'last': rows[-1]}\n";

static const spx_hook_result *find(const spx_hook_results *r, const char *name, size_t n)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->result[i].name, name) == 0) {
            CHECK(r->result[i].type == SPX_HOOK_FLOAT64 && r->result[i].ndim == 1 && r->result[i].shape[0] == n,
                  "type or shape of %s", name);
            return failures == 0 ? &r->result[i] : NULL;
        }
    CHECK(0, "no result %s", name);
    return NULL;
}

int main(void)
{
    spx_backend backend;
    spx_hook hook;
    spx_hook_results results;
    spx_err e = {0};
    spx_burgers run = {0};
    spx_svd svd = {0};
    choose_python(getenv("SPX_TEST_DEVICE") != NULL ? "cupy" : "numpy");
    open_device(&backend, SPX_OP_BURGERS);
    spx_status st = open_text(&hook, source, &e);
    const size_t before = copied_so_far(&backend).to_host;
    const spx_burgers_options o = {
        .nx = 128, .viscosity = 0.02, .dt = 0.002, .nstep = 300, .every = 1, .nthreads = 1, .hook = &hook};
    if (st == SPX_OK)
        st = backend.burgers(&backend, &o, &run, &e);
    const size_t bytes = run.nsnapshot * run.nx * sizeof *run.snapshot;
    if (st == SPX_OK && backend.copied != NULL)
        CHECK(copied_so_far(&backend).to_host - before == bytes, "%zu bytes came to the host, not %zu",
              copied_so_far(&backend).to_host - before, bytes);
    if (st == SPX_OK)
        st = spx_hook_finish(&hook, &results, &e);
    if (st == SPX_OK) {
        const spx_hook_result *s = find(&results, "s", 6), *last = find(&results, "last", run.nx);
        if (last != NULL)
            CHECK(memcmp(last->data, run.snapshot + (run.nsnapshot - 1) * run.nx, run.nx * sizeof *run.snapshot) == 0,
                  "the last state is another one");
        const spx_svd_options so = {.rank = 6};
        st = backend.svd(&backend, run.snapshot, run.nsnapshot, run.nx, &so, &svd, &e);
        for (size_t k = 0; s != NULL && k < 6 && st == SPX_OK; k++)
            CHECK(fabs(((const double *)s->data)[k] - svd.s[k]) < 1e-11 * svd.s[0], "singular value %zu: %.15g, %.15g",
                  k, ((const double *)s->data)[k], svd.s[k]);
        spx_hook_results_free(&results);
    }
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    spx_hook_close(&hook);
    spx_burgers_free(&run);
    spx_svd_free(&svd);
    spx_backend_close(&backend);
    return failures != 0;
}
