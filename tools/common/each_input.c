#include "common/each_input.h"

#include <string.h>

#include "base/mem.h"

/* All products that standard input holds. */
static spx_status each_of_pipe(spx_run *s, spx_status (*use)(void *ctx, spx_input *in, spx_err *e), void *ctx,
                               spx_err *e)
{
    int end = 0;
    spx_status st = SPX_OK;
    for (int first = 1; st == SPX_OK; first = 0) {
        spx_input *in = spx_alloc(1, sizeof *in, e);
        if (in == NULL)
            return SPX_EIO;
        in->file = H5I_INVALID_HID;
        st = spx_input_next(in, first, &end, e);
        if (st == SPX_OK && !end)
            st = spx_run_use_input(s, in, 1, e);
        if (st != SPX_OK || end) {
            spx_run_close_input(in);
            return st;
        }
        st = use(ctx, in, e);
    }
    return st;
}

spx_status spx_each_input(spx_run *s, spx_status (*use)(void *ctx, spx_input *in, spx_err *e), void *ctx, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < s->ninput && st == SPX_OK; i++) {
        spx_input *in;
        if (strcmp(s->input[i], "-") == 0)
            st = each_of_pipe(s, use, ctx, e);
        else if ((st = spx_run_input(s, i, &in, e)) == SPX_OK)
            st = use(ctx, in, e);
    }
    return st;
}

void spx_warn_of_purpose(const spx_cards *header, const char *name, const char *const *words, const char *what)
{
    static const char *const keyword[] = {"OBSTYPE", "FLAVOR", "IMAGETYP"};
    char purpose[32];
    for (size_t i = 0; i < sizeof keyword / sizeof *keyword; i++) {
        int is = !spx_cards_string(header, keyword[i], purpose, sizeof purpose) || purpose[0] == '\0';
        for (const char *const *w = words; *w != NULL && !is; w++)
            is = strcasestr(purpose, *w) != NULL;
        if (is)
            continue;
        spx_warn("%s: %s in its header is %s: is it %s?", name, keyword[i], purpose, what);
        return;
    }
}
