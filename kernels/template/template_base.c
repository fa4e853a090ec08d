/* Provides the inner loops of the templates for any processor. */
#include "template/template_impl.h"

#define SPX_VL      2
#define SPX_KERNELS base
#include "template/template_lanes.h"

const spx_template_kernels *spx_template_kernels_base(void)
{
    return &base;
}
