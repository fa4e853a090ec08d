#include "common/preproc_masters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/each_input.h"
#include "common/plausible_inputs.h"
#include "common/purpose.h"
#include "h5/object.h"
#include "products/master_h5.h"
#include "products/plausible.h"
#include "products/raw_h5.h"

typedef struct {
    spx_run *s;
    const spx_preproc_master_task *t;
    spx_combine stack;
    spx_layout layout; /* of the first exposure, */
    char camera[16], first[1024];
    spx_cards header;
    double exptime;
} maker;

/* Is the layout that of the first exposure? */
static spx_status same_layout(const maker *m, const spx_layout *l, const char *camera, spx_err *e)
{
    const spx_layout *f = &m->layout;
    if (strcasecmp(m->camera, camera) != 0)
        return spx_fail(e, SPX_EINPUT, "is of camera %s, %s of camera %s", camera, m->first, m->camera);
    if (l->ny != f->ny || l->nx != f->nx || l->namp != f->namp)
        return spx_fail(e, SPX_EINPUT, "has %zu x %zu pixels and %zu amplifiers, %s %zu x %zu and %zu", l->nx, l->ny,
                        l->namp, m->first, f->nx, f->ny, f->namp);
    for (size_t k = 0; k < l->namp; k++) {
        const spx_amplifier *a = &l->amp[k], *b = &f->amp[k];
        if (memcmp(&a->ccd, &b->ccd, sizeof a->ccd) != 0)
            return spx_fail(e, SPX_EINPUT, "amplifier %s has other pixels than in %s", a->name, m->first);
        if (!(fabs(a->gain - b->gain) <= 1e-6 * b->gain))
            return spx_fail(e, SPX_EINPUT, "amplifier %s has a gain of %g electron/adu, in %s %g", a->name, a->gain,
                            m->first, b->gain);
    }
    return SPX_OK;
}

static spx_status keep_first(maker *m, spx_layout *l, const spx_raw *raw, const char *name, spx_err *e)
{
    m->layout = *l; /* changes hands */
    memset(l, 0, sizeof *l);
    memcpy(m->camera, raw->camera, sizeof m->camera);
    (void)snprintf(m->first, sizeof m->first, "%s", name);
    return spx_preproc_header(raw, &m->header, e);
}

static spx_status common_header(maker *m, const spx_raw *raw, spx_err *e)
{
    spx_cards h = {0};
    const spx_status st = spx_preproc_header(raw, &h, e);
    if (st == SPX_OK)
        spx_cards_keep_common(&m->header, &h);
    spx_cards_free(&h);
    return st;
}

static spx_status preprocess(maker *m, const spx_raw *raw, const char *name, const spx_layout *l, spx_err *e)
{
    static const char *const words[SPX_MASTERS][4] = {{"bias", "zero", NULL}, {"dark", NULL}, {"flat", "lamp", NULL}};
    static const char *const what[SPX_MASTERS] = {"a bias", "a dark", "a flat"};
    const spx_preproc_master_task *t = m->t;
    const spx_master_kind kind = t->combine.kind;
    const double exptime = spx_raw_exptime(raw, kind == SPX_MASTER_DARK);
    spx_preproc_options o = t->preproc;
    spx_preproc_masters with = {0};
    spx_image im = {0};
    spx_overscan *over = spx_alloc(l->namp, sizeof *over, e);
    spx_status st = over != NULL ? SPX_OK : SPX_EIO;
    spx_warn_of_purpose(&raw->header, name, words[kind], what[kind]);
    o.exptime = exptime;
    if (st == SPX_OK && kind == SPX_MASTER_DARK && exptime <= 0)
        st = spx_fail(e, SPX_EINPUT, "the header has no exposure time (DARKTIME, EXPTIME): this dark cannot be scaled");
    if (st == SPX_OK)
        st = spx_preproc_files_for(t->files, l, raw->camera, exptime, &with, e);
    if (st == SPX_OK)
        st = spx_preproc_cpu(raw, l, &with, &o, &im, over, e);
    if (st == SPX_OK)
        st = spx_combine_add(&m->stack, &t->combine, l, &im, over, exptime, e);
    m->exptime += exptime;
    for (size_t k = 0; k < l->namp && over != NULL; k++)
        spx_overscan_free(&over[k]);
    spx_free(over);
    spx_free((void *)with.bad);
    spx_image_free(&im);
    return st;
}

/* Of the exposure that was added last. */
static void warn_if_repeated(const spx_combine *c, const spx_layout *l, const char *name)
{
    const float *const last = c->exposure[c->n - 1].data;
    for (size_t k = 0; k + 1 < c->n; k++)
        if (spx_warn_of_repeated(last, c->exposure[k].data, l->ny * l->nx * sizeof *last, name))
            return;
}

static spx_status add(void *ctx, spx_input *in, spx_err *e)
{
    maker *m = ctx;
    spx_raw raw = {0};
    spx_layout l = {0};
    spx_status st = spx_h5_exists(in->file, "/raw")
                        ? spx_raw_read(in->file, NULL, &raw, e)
                        : spx_fail_remedy(e, SPX_EINPUT, "make it of a FITS file with fits2h5", "no raw exposure");
    if (st == SPX_OK)
        st = spx_layout_make(&raw, m->t->layout, m->t->preproc.overscan != SPX_OVERSCAN_NONE, &l, e);
    if (st == SPX_OK && m->stack.n > 0)
        st = same_layout(m, &l, raw.camera, e);
    if (st == SPX_OK)
        st = preprocess(m, &raw, in->name, &l, e);
    if (st == SPX_OK)
        warn_if_repeated(&m->stack, &l, in->name);
    if (st == SPX_OK)
        st = m->stack.n == 1 ? keep_first(m, &l, &raw, in->name, e) : common_header(m, &raw, e);
    spx_layout_free(&l);
    spx_raw_free(&raw);
    return st == SPX_OK ? SPX_OK : spx_err_at(e, in->name, NULL);
}

/* ---- the product ---- */

static spx_status make_table(const spx_layout *l, const spx_combine_amp *amp, spx_table **t, spx_err *e)
{
    enum { NREAL = 3 };
    static const char *const name[NREAL] = {"GAIN", "READNOISE", "SCATTER"};
    static const char *const unit[NREAL] = {"electron/adu", "electron", NULL};
    const size_t n = l->namp;
    char *names = spx_alloc(n, SPX_RAW_NAME, e), *section = spx_alloc(n, SPX_SECTION_TEXT, e);
    double *v = spx_alloc2(NREAL, n, sizeof *v, e);
    *t = spx_table_new(n, e);
    spx_status st = names == NULL || section == NULL || v == NULL || *t == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        memcpy(names + k * SPX_RAW_NAME, l->amp[k].name, strlen(l->amp[k].name));
        spx_section_print(&l->amp[k].ccd, section + k * SPX_SECTION_TEXT);
        v[k] = l->amp[k].gain;
        v[n + k] = amp[k].readnoise;
        v[2 * n + k] = amp[k].scatter;
    }
    if (st == SPX_OK)
        st = spx_table_add_strings(*t, "NAME", SPX_RAW_NAME, names, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(*t, "CCDSEC", SPX_SECTION_TEXT, section, e);
    for (size_t i = 0; i < NREAL && st == SPX_OK; i++)
        st = spx_table_add(*t, name[i], H5T_NATIVE_DOUBLE, unit[i], v + i * n, e);
    spx_free(names);
    spx_free(section);
    spx_free(v);
    return st;
}

/* What stands out; *broken: rules. */
static void report(const maker *m, const spx_master *out, const spx_combine_amp *amp, unsigned *broken)
{
    size_t bad = 0, hot = 0;
    for (size_t i = 0; i < out->ny * out->nx; i++) {
        bad += (out->mask[i] & SPX_CCD_BAD) != 0;
        hot += (out->mask[i] & (SPX_CCD_HOT | SPX_CCD_LOWFLAT)) != 0;
    }
    for (size_t k = 0; k < m->layout.namp; k++) {
        const spx_amplifier *a = &m->layout.amp[k];
        const double chi2 = amp[k].scatter * amp[k].scatter;
        spx_note("amplifier %s: read noise %.3f electrons; scatter of the exposures %.3f of the expected one", a->name,
                 amp[k].readnoise, amp[k].scatter);
        if (out->kind == SPX_MASTER_FLAT && amp[k].photons > 0.8 && amp[k].dof > 1000 &&
            spx_rule_broken(SPX_RULE_GAIN, chi2)) {
            *broken |= 1u << SPX_RULE_GAIN;
            spx_warn("amplifier %s: the variance of the exposures is %.3g of that of photons with a gain of %g "
                     "electron/adu: with %.4g it would be right",
                     a->name, chi2, a->gain, a->gain / chi2);
        }
    }
    if (bad + hot > 0)
        spx_note("%zu pixels are flagged as BAD, %zu as %s", bad, hot,
                 out->kind == SPX_MASTER_FLAT ? "LOWFLAT" : "HOT");
    if (out->nexp == 1)
        spx_warn("one exposure: hits are not left out, and the scatter is not known");
}

static spx_status check_task(const spx_preproc_master_task *t, spx_err *e)
{
    static const char *const option[] = {"--bias", "--dark", "--flat"};
    const spx_master_kind kind = t->combine.kind;
    for (int k = (int)kind; k < SPX_MASTERS; k++)
        if (t->files->name[k] != NULL)
            return spx_fail(e, SPX_EUSAGE, "a master %s is made without %s", spx_master_names[kind], option[k]);
    return SPX_OK;
}

spx_status spx_preproc_make_master(spx_run *s, const spx_preproc_master_task *t, spx_err *e)
{
    maker m = {.s = s, .t = t};
    spx_master out = {0};
    spx_combine_amp *amp = NULL;
    spx_combine_options o = t->combine;
    unsigned broken = 0;
    hid_t file;
    spx_run_step(s, "read");
    spx_status st = check_task(t, e);
    if (st == SPX_OK)
        st = spx_preproc_files_read(s, t->files, e);
    if (st == SPX_OK)
        st = spx_each_input(s, add, &m, e);
    spx_run_step(s, "combine");
    if (st == SPX_OK && (amp = spx_alloc(m.layout.namp, sizeof *amp, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK) {
        const spx_master *bias = t->files->name[SPX_MASTER_BIAS] != NULL ? &t->files->master[SPX_MASTER_BIAS] : NULL;
        o.progress = spx_progress_start(s->common.progress, "combine", "amplifiers", m.layout.namp);
        st = spx_combine_cpu(&m.stack, &o, &m.layout, bias, &out, amp, e);
        spx_progress_end(o.progress);
    }
    spx_run_step(s, "write");
    if (st == SPX_OK) {
        memcpy(out.camera, m.camera, sizeof out.camera);
        out.exptime = m.exptime;
        out.header = m.header;
        memset(&m.header, 0, sizeof m.header);
        st = make_table(&m.layout, amp, &out.amplifiers, e);
    }
    if (st == SPX_OK) {
        report(&m, &out, amp, &broken);
        st = spx_run_output(s, "master", &file, e);
    }
    if (st == SPX_OK)
        st = spx_master_write(file, &out, e);
    if (st == SPX_OK)
        st = spx_plausible_flag(s, file, "/master", broken, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);
    spx_combine_free(&m.stack);
    spx_layout_free(&m.layout);
    spx_cards_free(&m.header);
    spx_master_free(&out);
    spx_preproc_files_free(t->files);
    spx_free(amp);
    return st;
}
