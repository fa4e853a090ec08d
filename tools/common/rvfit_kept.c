#include "common/rvfit_kept.h"

#include <string.h>

#include "common/rvfit_arms.h"

void spx_rvfit_drop_plan(spx_backend *b, spx_rvfit_kept *k)
{
    if (k->planned)
        b->rvfit_close(b, k->plan);
    else
        spx_rvfit_close_cpu(k->plan);
    k->plan = NULL;
    k->planned = 0;
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        spx_arm_free(&k->bins[a]);
}

void spx_rvfit_drop_kept(spx_backend *b, spx_rvfit_kept *k)
{
    spx_rvfit_drop_plan(b, k);
    spx_templates_free(&k->templates);
    k->ino = 0;
}

spx_status spx_rvfit_take_templates(const spx_rvfit_args *o, spx_run *s, spx_backend *b, spx_rvfit_kept *k, spx_err *e)
{
    spx_input *in;
    spx_status st = spx_run_extra_input(s, o->templates, &in, e);
    if (st != SPX_OK ||
        (k->ino != 0 && k->ino == in->ino && k->dev == in->dev && k->mtime == in->mtime && k->size == in->size))
        return st;
    spx_rvfit_drop_kept(b, k);
    st = spx_rvfit_read_templates(o, in, &k->templates, e);
    if (st == SPX_OK) {
        k->dev = in->dev;
        k->ino = in->ino;
        k->mtime = in->mtime;
        k->size = in->size;
    }
    return st;
}

/* Is the plan of the product before for these arms and options? */
static int plan_suits(const spx_rvfit_kept *k, const spx_rvfit_options *fit, const spx_spectra_parts *spectra,
                      const spx_setup *const *setup)
{
    int ok = k->planned && memcmp(fit, &k->options, sizeof *fit) == 0;
    for (size_t a = 0; a < SPX_MAX_ARM && ok; a++) {
        const spx_arm *now = a < spectra->all.narm && setup[a] != NULL ? &spectra->all.arm[a] : NULL;
        const spx_arm *then = &k->bins[a];
        ok = setup[a] == k->setup[a];
        if (ok && now != NULL)
            ok = now->nwave == then->nwave && now->ndiag == then->ndiag && now->medium == then->medium &&
                 memcmp(now->wavelength, then->wavelength, now->nwave * sizeof *now->wavelength) == 0;
    }
    return ok;
}

spx_status spx_rvfit_take_plan(spx_backend *b, const spx_rvfit_options *fit, const spx_spectra_parts *spectra,
                               const spx_setup *const *setup, spx_rvfit_kept *k, spx_err *e)
{
    if (plan_suits(k, fit, spectra, setup))
        return SPX_OK;
    spx_rvfit_drop_plan(b, k);
    k->options = *fit;
    memcpy(k->setup, setup, sizeof k->setup);
    spx_status st = SPX_OK;
    for (size_t a = 0; a < spectra->all.narm && st == SPX_OK; a++)
        if (setup[a] != NULL && !spectra->all.arm[a].per_row) {
            st = spx_arm_copy_bins(&spectra->all.arm[a], &k->bins[a], e);
            k->bins[a].ndiag = spectra->all.arm[a].ndiag;
        }
    return st;
}

spx_status spx_rvfit_begin_plan(const spx_rvfit_args *o, const spx_rvfit_input *in, spx_rvfit_kept *k, spx_err *e)
{
    if (k->planned)
        return SPX_OK;
    const spx_status st = spx_rvfit_open_cpu(in, &k->options, &k->plan, e);
    return st == SPX_EINPUT ? spx_err_context(e, "%s", o->templates) : st;
}

int spx_rvfit_may_keep(const spx_rvfit_kept *k, const spx_setup *cut)
{
    int may = k->planned && k->options.transmission == NULL && k->options.hook == NULL;
    for (size_t a = 0; a < SPX_MAX_ARM && may; a++)
        may = cut[a].nwave == 0;
    return may;
}
