/* kernels/backend.h: the CPU has every operation and its table runs what was asked for; a device that cannot be used is
 * refused where it was asked for by name, and said to be so where not; which devices a program lets the driver start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "check.h"

static void sees(const char *device, const char *before, const char *after)
{
    if (before != NULL)
        (void)setenv("CUDA_VISIBLE_DEVICES", before, 1);
    else
        (void)unsetenv("CUDA_VISIBLE_DEVICES");
    const pid_t child = fork(); /* a process restricts itself once */
    if (child > 0) {
        int status = 1;
        (void)waitpid(child, &status, 0);
        failures += status != 0;
        return;
    }
    failures = 0;
    spx_backend_restrict(device);
    const char *now = getenv("CUDA_VISIBLE_DEVICES");
    CHECK(after != NULL ? now != NULL && strcmp(now, after) == 0 : now == NULL, "--device %s: sees %s", device,
          now != NULL ? now : "all");
    _exit(failures != 0);
}

/* A sum through the table of an open backend. */
static void sums(spx_backend *b, const char *device)
{
    static const double data[] = {3, -1, 2.5};
    size_t bad = 0;
    spx_err e = {0};
    spx_reduce r;
    spx_status st = spx_reduce_new(SPX_REDUCE_SUM, 0, 1, &r, &e);
    if (st == SPX_OK) {
        spx_reduce_begin(&r, 1);
        st = b->reduce(b, data, 1, 3, 1, 0, 1, &r, &bad, &e);
    }
    if (st == SPX_OK)
        st = spx_reduce_end(&r, &e);
    CHECK(st == SPX_OK && r.value[0] == 4.5 && r.count[0] == 3, "--device %s: the sum is not 4.5: %s", device,
          spx_err_text(&e));
    spx_reduce_free(&r);
}

/* No backend is where they are looked for, whether the machine has a device or not. */
static void opens(void)
{
    (void)setenv("SPX_BACKENDS", "/no/such/folder", 1);
    for (int op = 0; op < SPX_NOPERATION; op++) {
        spx_backend b;
        spx_err e = {0}, why = {0};
        CHECK(spx_backend_open(&b, "cpu", (spx_op)op, &why, &e) == SPX_OK && strcmp(b.device, "cpu") == 0 &&
                  why.code == SPX_OK,
              "%s on the CPU: %s", spx_op_name((spx_op)op), spx_err_text(&e));
        if (op == SPX_OP_REDUCE)
            sums(&b, "cpu");
        spx_backend_close(&b);
        CHECK(spx_backend_open(&b, "auto", (spx_op)op, &why, &e) == SPX_OK && strcmp(b.device, "cpu") == 0 &&
                  why.code == SPX_EDEVICE && strstr(spx_err_text(&why), "install") != NULL,
              "%s on any device: %s%s", spx_op_name((spx_op)op), e.text, why.text);
        if (op == SPX_OP_REDUCE)
            sums(&b, "auto");
        spx_backend_close(&b);
    }
}

static void refuses(const char *device, spx_status status, const char *text)
{
    spx_backend b;
    spx_err e = {0};
    const spx_status st = spx_backend_open(&b, device, SPX_OP_REDUCE, NULL, &e);
    CHECK(st == status && strstr(spx_err_text(&e), text) != NULL, "--device %s: status %d, not %d: %s", device, (int)st,
          (int)status, spx_err_text(&e));
}

int main(void)
{
    opens();
    refuses("cuda", SPX_EDEVICE, "use {device} cpu or auto");
    refuses("cuda:1", SPX_EDEVICE, "use {device} cpu or auto");
    refuses("gpu", SPX_EUSAGE, "'gpu' is not auto, cpu, cuda or cuda:0,1...");
    refuses("", SPX_EUSAGE, "'' is not auto, cpu");
    refuses("cudas", SPX_EUSAGE, "'cudas' is not");
    refuses("cuda:1@0", SPX_EUSAGE, "'cuda:1@0' is not");
    sees("auto", NULL, "0");
    sees("cuda", NULL, "0");
    sees("cuda:0", NULL, "0");
    sees("cuda:1", NULL, "1");
    sees("cuda:12", NULL, "12");
    sees("cuda:0,1", NULL, NULL);
    sees("cpu", NULL, NULL);
    sees("cuda", "2,3", "2,3");
    sees("cuda:0", "2,3", "2");
    sees("cuda:1", "2,GPU-0a1b,3", "GPU-0a1b");
    sees("cuda:2", "2,3", "2,3");
    sees("cuda:0", "", "");
    sees("cuda:x", NULL, NULL);
    sees("cuda:1@0", NULL, NULL);
    sees("auto", "", "");
    return failures != 0;
}
