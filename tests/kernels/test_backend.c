/* Which devices a program lets the driver start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "check.h"

static void sees(const char *device, const char *before, const char *after)
{
    if (before != NULL)
        (void)setenv("CUDA_VISIBLE_DEVICES", before, 1);
    else
        (void)unsetenv("CUDA_VISIBLE_DEVICES");
    spx_backend_first_alone(device);
    const char *now = getenv("CUDA_VISIBLE_DEVICES");
    CHECK(after != NULL ? now != NULL && strcmp(now, after) == 0 : now == NULL, "--device %s: sees %s", device,
          now != NULL ? now : "all");
}

int main(void)
{
    sees("auto", NULL, "0");
    sees("cuda", NULL, "0");
    sees("cuda:0", NULL, "0");
    sees("cuda:1", NULL, NULL);
    sees("cuda:0,1", NULL, NULL);
    sees("cpu", NULL, NULL);
    sees("cuda", "2,3", "2,3");
    sees("auto", "", "");
    return failures != 0;
}
