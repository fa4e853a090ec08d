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

/* Asks CUDA for n queues to a device, 1 to 8, not for eight of 10 to 20 ms each, unless the user has asked for some:
 * for programs that end before these are used. Before the device is opened, in the only thread. */
void spx_device_queues(int n);

/* Opening a GPU takes a good part of a second, in which files can be read: begin, and end before the backend is used,
 * also after an error; further ends have the same result. */
void spx_open_device_begin(spx_device_opening *d);
spx_status spx_open_device_end(spx_device_opening *d, spx_err *e);

/* Opens what --device asks for, has it in the provenance, and says (-v) why `auto` came to be the CPU. Closed with
 * spx_backend_close(). */
spx_status spx_open_device(spx_run *s, spx_op op, spx_backend *b, spx_err *e);

/* A GPU takes some 60 ms to give back what a program has of it, in which a product can be written: begin, when the
 * backend is used no more, and spx_close_device(), which waits for that, or closes a backend where nobody has begun. */
typedef struct {
    pthread_t thread;
    int threaded;
} spx_device_closing;
void spx_close_device_begin(spx_backend *b, spx_device_closing *c);
void spx_close_device(spx_backend *b, spx_device_closing *c);

#endif
