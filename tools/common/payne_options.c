#include "common/payne_options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

spx_status spx_payne_parse_labels(const char *labels, size_t nfix, const char *const *fix,
                                  spx_payne_label l[SPX_PAYNE_MAX_LABEL], size_t *n, spx_err *e)
{
    *n = 0;
    for (const char *p = labels; *p != '\0';) {
        char text[96], *colon;
        size_t len = strcspn(p, ",");
        if (*n == SPX_PAYNE_MAX_LABEL || len == 0 || len >= sizeof text)
            return spx_fail(e, SPX_EUSAGE, "--labels: up to %d names, with commas between, are wanted",
                            SPX_PAYNE_MAX_LABEL);
        memcpy(text, p, len);
        text[len] = '\0';
        l[*n] = (spx_payne_label){.unit = 1, .fixed = (double)NAN};
        if ((colon = strchr(text, ':')) != NULL) {
            spx_status st = spx_parse_double(colon + 1, "--labels: unit", &l[*n].unit, e);
            if (st == SPX_OK && !(l[*n].unit > 0))
                st = spx_fail(e, SPX_EUSAGE, "--labels: a unit of %g is not possible", l[*n].unit);
            if (st != SPX_OK)
                return st;
            *colon = '\0';
        }
        if (text[0] == '\0' || strlen(text) >= sizeof l->name)
            return spx_fail(e, SPX_EUSAGE, "--labels: a name has 1 to %zu characters", sizeof l->name - 1);
        (void)snprintf(l[*n].name, sizeof l->name, "%.31s", text);
        for (size_t k = 0; k < *n; k++)
            if (strcmp(l[k].name, l[*n].name) == 0)
                return spx_fail(e, SPX_EUSAGE, "--labels: two inputs are called '%s'", l[k].name);
        ++*n;
        p += len + (p[len] == ',');
    }
    for (size_t i = 0; i < nfix; i++) {
        const char *text = fix[i], *equals = strchr(text, '=');
        size_t k = 0, len = equals != NULL ? (size_t)(equals - text) : 0;
        while (k < *n && (strlen(l[k].name) != len || strncmp(l[k].name, text, len) != 0))
            k++;
        if (equals == NULL || k == *n)
            return spx_fail(e, SPX_EUSAGE, "--fix %s: NAME=VALUE with a name of --labels is wanted", text);
        spx_status st = spx_parse_double(equals + 1, "--fix", &l[k].fixed, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}
