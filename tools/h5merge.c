/* h5merge: joins fibre subsets, cameras, or rows of products, or coadds exposures. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/main.h"
#include "base/parse.h"
#include "base/text.h"
#include "common/coadd_merge.h"
#include "common/each_input.h"
#include "common/kernel_options.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "merge/merge.h"
#include "products/plausible.h"

static struct {
    spx_merge_by by;
    const char *fibers;
    int allow_missing, by_given, coadd, reject_given, scale_given, diagonals_given;
    spx_opt_list allow;
    spx_coadd_args c;
} o = {.by = SPX_MERGE_AUTO, .coadd = SPX_NO_CHOICE, .c = {.reject = 5, .scale = 1}};

static const spx_opt_choice ways[] = {{"auto", SPX_MERGE_AUTO},
                                      {"fibers", SPX_MERGE_FIBERS},
                                      {"cameras", SPX_MERGE_CAMERAS},
                                      {"rows", SPX_MERGE_ROWS},
                                      {0}};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "by", 'b', NULL, o.by,
               "Join fibres of one camera, cameras of one exposure, or rows; auto sees it from the content",
               .choices = ways, .given = &o.by_given),
    SPX_OPTION(STRING, "fibers", 0, "FIRST:LAST", o.fibers, "Fibres that the result must have, without LAST",
               .absent = "those that are there"),
    SPX_OPTION(FLAG, "allow-missing", 0, NULL, o.allow_missing,
               "Do without files, fibres or arms that are absent, and flag the rows that lack something"),
    SPX_OPTION_ALLOW(o.allow),
    SPX_OPTION(CHOICE, "coadd", 0, NULL, o.coadd,
               "Coadd the exposures of each target. simple: means weighted bin by bin, exact in the resolution matrix; "
               "optimal: keeps all information where resolutions differ; auto: optimal for targets whose exposures "
               "differ in width by more than 5 %",
               .choices =
                   SPX_CHOICES({"simple", SPX_COADD_SIMPLE}, {"optimal", SPX_COADD_OPTIMAL}, {"auto", SPX_COADD_AUTO}),
               .absent = "exposures are not coadded"),
    SPX_OPTION(STRING, "targetid-file", 0, "FILE", o.c.targets,
               "Coadd the targets of this text only, a TARGETID a line"),
    SPX_OPTION(CHOICE, "scale", 0, NULL, o.c.scale,
               "Factor of each exposure and arm before they are coadded. grey: found where it improves the fit "
               "noticeably; none: 1",
               .choices = SPX_CHOICES({"grey", 1}, {"none", 0}), .given = &o.scale_given),
    SPX_OPTION(DOUBLE, "reject", 0, "N", o.c.reject,
               "Leave bins of an exposure out of the coadd that are more than N errors off; 0: none", .max = 1e6,
               .given = &o.reject_given),
    SPX_OPTION(INT, "diagonals", 0, "N", o.c.diagonals,
               "Diagonals of the resolution matrices of coadds, an odd number; 41 of optimal ones keep the information "
               "of the exposures to 1e-8",
               .min = 3, .max = SPX_COADD_MOST_OUT, .given = &o.diagonals_given,
               .absent = "those of the exposures, 4 more where coadds may be optimal"),
    SPX_OPTION(FLAG, "allow-topocentric", 0, NULL, o.c.allow_topocentric,
               "Coadd exposures on topocentric wavelengths as they are"),
    {0}};

/* Options of coadds and of joins do not go together. */
static spx_status check_coadd(spx_err *e)
{
    if (o.coadd == SPX_NO_CHOICE && (o.reject_given || o.scale_given || o.c.allow_topocentric || o.c.targets != NULL))
        return spx_fail(e, SPX_EUSAGE, "%s: goes with --coadd only",
                        o.reject_given        ? "--reject"
                        : o.scale_given       ? "--scale"
                        : o.c.targets != NULL ? "--targetid-file"
                                              : "--allow-topocentric");
    if (o.diagonals_given && (o.coadd == SPX_NO_CHOICE || o.coadd == SPX_COADD_SIMPLE))
        return spx_fail(e, SPX_EUSAGE, "--diagonals: goes with --coadd optimal or auto");
    if (o.coadd != SPX_NO_CHOICE && (o.by_given || o.fibers != NULL || o.allow.n > 0))
        return spx_fail(e, SPX_EUSAGE,
                        "%s: does not go with --coadd, which takes the arms and exposures that are there",
                        o.by_given         ? "--by"
                        : o.fibers != NULL ? "--fibers"
                                           : "--allow");
    return SPX_OK;
}

static spx_status parse_options(spx_merge_options *mo, spx_err *e)
{
    double range[2];
    size_t n = 0;
    mo->by = o.by;
    mo->allow_missing = o.allow_missing;
    unsigned allowed;
    if (spx_rules_allow("h5merge", &o.allow, &allowed, e) != SPX_OK)
        return e->code;
    mo->allow_repeated = (allowed & 1u << SPX_RULE_REPEATED) != 0;
    if (o.fibers == NULL)
        return SPX_OK;
    spx_status st = spx_parse_doubles(o.fibers, ':', "--fibers", "FIRST:LAST", 2, range, &n, e);
    if (st != SPX_OK)
        return st;
    if (n != 2 || range[0] < 0 || range[1] <= range[0] || range[1] > 1e6 || range[0] != (double)(long)range[0] ||
        range[1] != (double)(long)range[1])
        return spx_fail(e, SPX_EUSAGE, "--fibers: '%s' is not FIRST:LAST with LAST > FIRST, such as 0:500", o.fibers);
    if (mo->by == SPX_MERGE_CAMERAS || mo->by == SPX_MERGE_ROWS)
        return spx_fail(e, SPX_EUSAGE, "--fibers goes with --by fibers only");
    mo->first = (long)range[0];
    mo->last = (long)range[1];
    return SPX_OK;
}

/* Takes inputs that do not exist, and may not, out of the run's list; their names in `absent`. */
static spx_status without_absent(spx_run *s, spx_text *absent, spx_err *e)
{
    spx_status st = SPX_OK;
    const size_t ninput = s->ninput;
    for (size_t i = s->ninput = 0; i < ninput && st == SPX_OK; i++) {
        char *name = s->input[i];
        if (o.allow_missing && strcmp(name, "-") != 0 && access(name, F_OK) != 0 && errno == ENOENT) {
            spx_warn("%s: is not there: going on without", name);
            st = spx_text_add(absent, e, "%s%s", absent->n > 0 ? " " : "", name);
        } else {
            s->input[s->ninput++] = name;
        }
    }
    if (st == SPX_OK && s->ninput == 0)
        st = spx_fail(e, SPX_EINPUT, "none of the inputs is there: %s", absent->s);
    return st;
}

static spx_status open_inputs(spx_run *s, spx_merge_part **part, size_t *npart, spx_err *e)
{
    spx_inputs all = {0};
    spx_status st = spx_all_inputs(s, s->ninput, s->input, &all, e);
    if (st == SPX_OK && (*part = spx_alloc(all.n, sizeof **part, e)) == NULL)
        st = SPX_EIO;
    for (*npart = 0; *npart < all.n && st == SPX_OK; (*npart)++) {
        const spx_input *in = all.in[*npart];
        (*part)[*npart] = (spx_merge_part){in->file, in->name, in->dev, in->ino};
    }
    spx_inputs_free(&all);
    return st;
}

static spx_status join(spx_run *s, const spx_merge *m, const spx_text *absent, spx_err *e)
{
    const char *product = spx_merge_product(m), *out = spx_merge_left_out(m);
    char path[32];
    hid_t file = H5I_INVALID_HID;
    spx_run_step(s, "write");
    spx_status st = spx_run_output(s, product, &file, e);
    if (st != SPX_OK)
        return st;
    spx_progress *p = spx_progress_start(s->common.progress, s->program->name, "datasets", spx_merge_steps(m));
    spx_merge_repairs repairs = {0};
    st = spx_merge_write(m, file, p, &repairs, e);
    spx_progress_end(p);
    (void)snprintf(path, sizeof path, "/%s", product);
    if (st == SPX_OK && absent->n > 0)
        st = spx_h5_set_str(file, path, "missing_inputs", absent->s, e);
    if (st == SPX_OK)
        st = spx_run_record(s, "joined", e, "%s", spx_opt_word(ways, (int)spx_merge_kind(m)));
    if (st == SPX_OK)
        st = spx_run_record(s, "rows", e, "%zu", spx_merge_nrow(m));
    if (st == SPX_OK)
        st = spx_run_record(s, "incomplete_rows", e, "%zu", spx_merge_nmissing(m));
    if (st == SPX_OK && absent->n > 0)
        st = spx_run_record(s, "missing_inputs", e, "%s", absent->s);
    if (st == SPX_OK && repairs.nvalue > 0)
        st = spx_run_record(s, "values_not_finite", e, "%zu", repairs.nvalue);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);
    if (st != SPX_OK)
        return st;
    if (repairs.nvalue > 0)
        spx_warn(
            "%zu values are not finite, or an ivar below 0, the first in %s: they become 0, flux and ivar both, with "
            "mask NODATA",
            repairs.nvalue, repairs.first);
    if (spx_merge_nmissing(m) > 0)
        spx_warn("%zu of %zu rows lack an arm: see MISSING_ARMS in /fibermap", spx_merge_nmissing(m),
                 spx_merge_nrow(m));
    while (out != NULL && *out != '\0') {
        size_t n = strcspn(out, "\n");
        spx_detail("%.*s: left out", (int)n, out);
        out += n + (out[n] == '\n');
    }
    return SPX_OK;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_merge_options mo = {0};
    spx_text absent = {0};
    spx_merge *m = NULL;
    spx_merge_part *part = NULL;
    size_t npart = 0;
    spx_err_options(spx_kernel_options);
    spx_status st = check_coadd(e);
    if (st == SPX_OK)
        st = without_absent(s, &absent, e);
    if (st == SPX_OK && o.coadd != SPX_NO_CHOICE) {
        o.c.method = (spx_coadd_method)o.coadd;
        o.c.absent = absent.n > 0 ? absent.s : NULL;
        st = spx_coadd_merge(&o.c, s, e);
        spx_text_free(&absent);
        return st;
    }
    if (st == SPX_OK)
        st = parse_options(&mo, e);
    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = open_inputs(s, &part, &npart, e);
    if (st == SPX_OK)
        st = spx_merge_plan(npart, part, &mo, &m, e);
    if (st == SPX_OK)
        st = join(s, m, &absent, e);
    spx_merge_free(m);
    spx_text_free(&absent);
    spx_free(part);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5merge",
                                        .summary = "join fibres, cameras or rows of products, or coadd exposures",
                                        .usage = "[OPTION...] FILE...",
                                        .example = "h5merge -o spectra.h5 frame-b.h5 frame-r.h5 frame-z.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
