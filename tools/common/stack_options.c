/* Reads the text of an axis of h5stack's options (common/stack_options.h). */
#include "common/stack_options.h"

#include "base/parse.h"

spx_status spx_stack_axis_parse(const char *text, const char *what, spx_stack_axis *a, spx_err *e)
{
    double v[3];
    size_t n;
    spx_status st = spx_parse_doubles(text, ':', what, "a number or MIN:MAX:STEP", 3, v, &n, e);
    if (st != SPX_OK)
        return st;
    a->first = v[0];
    a->step = 0;
    a->n = 1;
    if (n == 1)
        return SPX_OK;
    if (n != 3 || !(v[2] > 0) || v[1] < v[0])
        return spx_fail(e, SPX_EUSAGE,
                        "%s: '%s' is neither a number nor MIN:MAX:STEP, with MIN up to MAX and a STEP above 0", what,
                        text);
    double steps = (v[1] - v[0]) / v[2];
    if (!(steps < 1e7))
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' has more than 10 million values", what, text);
    /* the end belongs to it, however its step was rounded */
    a->n = (size_t)(steps + 1e-6) + 1;
    a->step = v[2];
    return SPX_OK;
}
