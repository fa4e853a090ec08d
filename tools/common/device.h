/* Opens the backend that --device asks for: for programs that run an operation. */
#ifndef SPX_TOOLS_DEVICE_H
#define SPX_TOOLS_DEVICE_H

#include <pthread.h>

#include "app/main.h"
#include "backend.h"

/* A backend that is being opened. */
typedef struct {
    spx_run *s;
    spx_op op;
    spx_backend *b;
    spx_err err, why;
    pthread_t thread;
    int threaded;
} spx_device_opening;

/* Asks CUDA for two queues to a device, not for eight of 10 to 20 ms each, unless the user has asked for some: for
 * programs that end before these are used. Before the device is opened, in the only thread. */
void spx_device_few_queues(void);

/* Opening a GPU takes a good part of a second, in which files can be read: begin, and end before the backend is used,
 * also after an error; further ends have the same result. */
void spx_open_device_begin(spx_device_opening *d);
spx_status spx_open_device_end(spx_device_opening *d, spx_err *e);

/* Opens what --device asks for, has it in the provenance, and says (-v) why `auto` came to be the CPU. Closed with
 * spx_backend_close(). */
spx_status spx_open_device(spx_run *s, spx_op op, spx_backend *b, spx_err *e);

#endif
