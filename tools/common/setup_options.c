/* Reads the text of --setup (common/setup_options.h). */
#include "common/setup_options.h"

#include <string.h>

#include "base/parse.h"

spx_status spx_template_parse_setup(const char *text, spx_template_request *r, spx_err *e)
{
    static const char *const layout = "NAME:MIN:MAX:STEP:R=EXPRESSION (or FWHM=EXPRESSION)[:air|:vacuum] is wanted";
    char field[6][128];
    size_t n = 0;
    memset(r, 0, sizeof *r);
    for (const char *p = text;; n++) {
        size_t len = strcspn(p, ":");
        if (n == 6 || len >= sizeof field[0])
            return spx_fail(e, SPX_EUSAGE, "setup '%.200s': %s", text, layout);
        memcpy(field[n], p, len);
        field[n][len] = 0;
        p += len;
        if (!*p++)
            break;
    }
    n++;
    if (n < 5)
        return spx_fail(e, SPX_EUSAGE, "setup '%.200s': %s", text, layout);
    if (strlen(field[0]) >= sizeof r->name)
        return spx_fail(e, SPX_EUSAGE, "setup '%.200s': the name is longer than %zu characters", text,
                        sizeof r->name - 1);
    strcpy(r->name, field[0]);
    strcpy(r->resolution, field[4]);
    spx_status st = spx_parse_double(field[1], "shortest wavelength", &r->wmin, e);
    if (st == SPX_OK)
        st = spx_parse_double(field[2], "longest wavelength", &r->wmax, e);
    if (st == SPX_OK)
        st = spx_parse_double(field[3], "step", &r->step, e);
    if (st == SPX_OK && n == 6) {
        if (!strcmp(field[5], "air"))
            r->medium = SPX_AIR;
        else if (strcmp(field[5], "vacuum"))
            st = spx_fail(e, SPX_EUSAGE, "'%.100s' is neither air nor vacuum", field[5]);
    }
    if (st == SPX_OK)
        st = spx_template_check_setup(r, e);
    return st != SPX_OK ? spx_err_context(e, "setup '%.200s'", text) : SPX_OK;
}
