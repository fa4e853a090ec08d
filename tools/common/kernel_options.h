/* Names the options of programs that set parameters of kernels: kernels know no command line, so their messages name
 * the parameter in braces. Each program that runs a kernel calls spx_err_options(spx_kernel_options) first of all. */
#ifndef SPX_COMMON_KERNEL_OPTIONS_H
#define SPX_COMMON_KERNEL_OPTIONS_H

#include "base/err.h"

/* Ended by NULL. Each {parameter} of a message in kernels/ is here (tests/rooms.sh). */
extern const spx_err_option spx_kernel_options[];

#endif
