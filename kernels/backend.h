/* A backend is a table of the stages that a device can run. The CPU backend is part of every program and is the
 * definition of correct; others are shared objects that are loaded at run time (see architecture.md in the README's
 * section for developers). A tool asks spx_backend_open() for a device and calls stages through the table only. */
#ifndef SPX_BACKEND_H
#define SPX_BACKEND_H

#include "base/err.h"
#include "base/progress.h"
#include "extract/extract.h"
#include "rvfit/rvfit.h"
#include "sim/sim.h"
#include "template/template.h"

/* Raised whenever the table or a structure that passes through it changes. */
enum { SPX_BACKEND_ABI = 1 };

#endif
