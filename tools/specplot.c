/* specplot: pictures of products, drawn by gnuplot. */
#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "app/plot.h"
#include "base/parse.h"
#include "common/each_input.h"
#include "common/picture.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"

enum { AUTO = -1 };

/* Kinds of pictures. The first input decides: the kind whose block is its main one (the attribute `product` of the
 * file) or, of files without it, is there. `with`: another block that has to be among the inputs; `several`: there have
 * to be several inputs. Without a product, a kind is drawn only when asked for. */
enum {
    FIT,
    FRAME,
    SPECTRUM,
    IMAGE,
    FLAT,
    SKY,
    FLUX,
    SHIFT,
    SHIFTS,
    STARS,
    TRUTH,
    CORNER,
    CCF,
    TEMPLATES,
    SVD,
    MATRIX,
    NIGHT,
    REPEATS,
    COMPARE
};

static const struct {
    int word;
    const char *product, *block, *with;
    int several;
    double width, height;
    void (*draw)(spx_picture *p);
} kinds[] = {
    {TRUTH, "rvfit", "/rvfit", "/truth/table", 0, 900, 1000, spx_picture_truth},
    {FIT, "rvfit", "/rvfit", "/spectra", 0, 900, 900, spx_picture_fit},
    {FIT, "rvfit", "/rvfit", "/frame", 0, 900, 900, spx_picture_fit},
    {STARS, "rvfit", "/rvfit", NULL, 0, 900, 460, spx_picture_stars},
    {FRAME, "frame", "/frame", NULL, 0, 900, 640, spx_picture_frame},
    {FRAME, "spectra", "/spectra", NULL, 0, 900, 640, spx_picture_frame},
    {IMAGE, "image", "/image", NULL, 0, 900, 640, spx_picture_image},
    {SHIFTS, "psf", "/shift", NULL, 1, 900, 700, spx_picture_shifts},
    {SHIFT, "psf", "/shift", "/shift", 0, 900, 640, spx_picture_shift},
    {FLAT, "flat", "/flat", NULL, 0, 900, 760, spx_picture_flat},
    {FLUX, "flux", "/flux", NULL, 0, 900, 560, spx_picture_flux},
    {SKY, "sky", "/sky", NULL, 0, 900, 640, spx_picture_sky},
    {TEMPLATES, "templates", "/templates", NULL, 0, 900, 640, spx_picture_templates},
    {SVD, "svd", "/svd", NULL, 0, 900, 700, spx_picture_svd},
    {MATRIX, "burgers", "/burgers", NULL, 0, 900, 560, spx_picture_matrix_of},
    {MATRIX, "stack", "/stack", NULL, 0, 900, 560, spx_picture_matrix_of},
    {MATRIX, "library", "/library", NULL, 0, 900, 560, spx_picture_matrix_of},
    {SPECTRUM, NULL, NULL, NULL, 0, 900, 640, spx_picture_spectrum},
    {CORNER, NULL, NULL, NULL, 0, 900, 900, spx_picture_corner},
    {CCF, NULL, NULL, NULL, 0, 900, 640, spx_picture_ccf},
    {NIGHT, NULL, NULL, NULL, 0, 900, 760, spx_picture_night},
    {REPEATS, NULL, NULL, NULL, 0, 900, 400, spx_picture_repeats},
    {COMPARE, NULL, NULL, NULL, 0, 900, 900, spx_picture_compare},
};
enum { NKIND = sizeof kinds / sizeof *kinds };

static struct {
    const char *targetid, *wavelength, *region, *size;
    long spectrum;
    int kind, format, script, table, spectrum_given;
    double zoom;
} o = {.kind = AUTO, .format = SPX_NO_CHOICE, .zoom = 2};

static const spx_opt_choice words[] = {
    {"auto", AUTO},     {"image", IMAGE},         {"frame", FRAME}, {"spectrum", SPECTRUM}, {"shift", SHIFT},
    {"shifts", SHIFTS}, {"flat", FLAT},           {"sky", SKY},     {"flux", FLUX},         {"fit", FIT},
    {"ccf", CCF},       {"corner", CORNER},       {"stars", STARS}, {"truth", TRUTH},       {"repeats", REPEATS},
    {"night", NIGHT},   {"templates", TEMPLATES}, {"svd", SVD},     {"matrix", MATRIX},     {"compare", COMPARE},
    {NULL, 0}};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "kind", 'k', "KIND", o.kind,
               "Picture to draw, in place of the one that the files suggest: specplot(1) lists them", .choices = words),
    SPX_OPTION(INT, "spectrum", 's', "N", o.spectrum, "Spectrum to show: the row N, counted from 0", .min = 0,
               .max = 1e9, .given = &o.spectrum_given, .no_default = 1,
               .absent = "one of median signal-to-noise ratio"),
    SPX_OPTION(STRING, "targetid", 0, "ID", o.targetid, "Spectrum or star to show, by its target"),
    SPX_OPTION(STRING, "wavelength", 'w', "MIN,MAX", o.wavelength, "Wavelengths to show, Angstrom", .absent = "all"),
    SPX_OPTION(STRING, "region", 'r', "X0:X1,Y0:Y1", o.region, "Columns and rows of a CCD to show, counted from 0",
               .absent = "all"),
    SPX_OPTION(STRING, "size", 0, "WIDTH,HEIGHT", o.size,
               "Size of the picture, in pixels of 1/96 inch. Letters keep their size",
               .absent = "900 by what the kind needs"),
    SPX_OPTION(DOUBLE, "zoom", 0, "N", o.zoom, "Pixels of a PNG for each pixel of --size", .min = 0.25, .max = 10),
    SPX_OPTION(CHOICE, "format", 0, NULL, o.format, "Format of a picture on standard output",
               .choices = SPX_CHOICES({"png", SPX_PLOT_PNG}, {"svg", SPX_PLOT_SVG}, {"pdf", SPX_PLOT_PDF}),
               .absent = "the output's suffix; png"),
    SPX_OPTION(FLAG, "table", 0, NULL, o.table,
               "With --kind night or compare: print the numbers instead, with tabs between"),
    SPX_OPTION(FLAG, "script", 0, NULL, o.script,
               "Print the gnuplot program with its data instead of running it. gnuplot is not needed then"),
    {0}};

/* Two numbers, the second above the first. */
static spx_status parse_range(const char *text, const char *option, const char *form, double range[2], spx_err *e)
{
    size_t n;
    spx_status st = spx_parse_doubles(text, ',', option, form, 2, range, &n, e);
    if (st == SPX_OK && (n != 2 || !(range[1] > range[0])))
        st = spx_fail(e, SPX_EUSAGE, "%s %s: should be %s", option, text, form);
    return st;
}

/* The kind for these inputs. */
static spx_status choose_kind(const spx_picture *p, size_t *kind, spx_err *e)
{
    for (*kind = 0; o.kind != AUTO && *kind < NKIND; ++*kind)
        if (kinds[*kind].word == o.kind)
            return SPX_OK;
    const spx_input *in = p->args->in[0];
    char product[64] = "";
    if (spx_h5_has_attr(in->file, "/", "product"))
        (void)spx_h5_attr_str(in->file, "/", "product", product, sizeof product, NULL);
    for (int loosely = 0; loosely < 2; loosely++)
        for (*kind = 0; *kind < NKIND; ++*kind)
            if (kinds[*kind].product != NULL &&
                (loosely ? spx_h5_exists(in->file, kinds[*kind].block) : strcmp(product, kinds[*kind].product) == 0) &&
                (kinds[*kind].with == NULL || spx_picture_find(p, kinds[*kind].with) != NULL) &&
                (!kinds[*kind].several || (p->args->n > 1 && spx_h5_exists(p->args->in[1]->file, kinds[*kind].block))))
                return SPX_OK;
    return spx_fail_at(e, SPX_EINPUT, in->name, NULL, "choose one with --kind, or other files",
                       "no picture is known for what it holds");
}

/* --region. */
static spx_status parse_region(double region[4], spx_err *e)
{
    char text[80], *comma;
    size_t n = 0, m = 0;
    (void)snprintf(text, sizeof text, "%s", o.region);
    spx_status st = SPX_OK;
    if ((comma = strchr(text, ',')) != NULL) {
        *comma = '\0';
        st = spx_parse_doubles(text, ':', "--region", "X0:X1,Y0:Y1", 2, region, &n, e);
        if (st == SPX_OK)
            st = spx_parse_doubles(comma + 1, ':', "--region", "X0:X1,Y0:Y1", 2, region + 2, &m, e);
    }
    if (st == SPX_OK &&
        (n != 2 || m != 2 || !(region[0] >= 0 && region[1] > region[0] && region[2] >= 0 && region[3] > region[2])))
        st = spx_fail(e, SPX_EUSAGE, "--region %s: should be X0:X1,Y0:Y1", o.region);
    return st;
}

static spx_status draw(spx_run *s, spx_picture *p, spx_plot_format format, spx_err *e)
{
    double size[2] = {0, 0};
    size_t kind = 0, n = 0;
    spx_tmpfile *out;
    spx_status st = o.size != NULL ? spx_parse_doubles(o.size, ',', "--size", "WIDTH,HEIGHT", 2, size, &n, e) : SPX_OK;
    if (st == SPX_OK && o.size != NULL &&
        (n != 2 || !(size[0] >= 200 && size[1] >= 150 && size[0] <= 10000 && size[1] <= 10000)))
        st = spx_fail(e, SPX_EUSAGE, "--size %s: should be WIDTH,HEIGHT, from 200,150 to 10000,10000", o.size);
    if (st == SPX_OK)
        st = choose_kind(p, &kind, e);
    if (st != SPX_OK)
        return st;
    p->width = o.size != NULL ? size[0] : kinds[kind].width;
    p->height = o.size != NULL ? size[1] : kinds[kind].height;
    spx_run_step(s, "data");
    if (o.table && kinds[kind].word == COMPARE) {
        spx_picture_compare_table(p);
    } else if (o.table) {
        spx_picture_night_table(p);
    } else {
        p->st = spx_plot_start(&p->script, format, p->width, p->height, o.zoom, e);
        kinds[kind].draw(p);
    }
    const int text = o.script || o.table;
    spx_run_step(s, text ? "write" : "gnuplot");
    if ((st = p->st) == SPX_OK)
        st = spx_run_tmpfile(s, s->common.output, &out, e);
    if (st == SPX_OK)
        st = text ? spx_write_all(out->fd, p->script.s, p->script.n, s->common.output, e)
                  : spx_plot_run(&p->script, out->fd, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_picture_args args = {.n = s->ninput, .spectrum = o.spectrum_given ? o.spectrum : -1, .target = o.targetid};
    spx_picture p = {.args = &args, .e = e};
    spx_inputs all = {0};
    spx_plot_format format = SPX_PLOT_PNG;
    spx_status st = SPX_OK;
    if (o.spectrum_given && o.targetid != NULL)
        return spx_fail(e, SPX_EUSAGE, "--spectrum and --targetid exclude each other");
    if (o.table && o.kind != NIGHT && o.kind != COMPARE)
        return spx_fail(e, SPX_EUSAGE, "--table goes with --kind night and compare only");
    /* these take any number of files */
    const int many = o.kind == NIGHT || o.kind == REPEATS, text = o.script || o.table;
    args.name = s->input;
    if (text)
        spx_text_output();
    if (text && s->common.output == NULL)
        s->common.output = "-";
    else
        st = spx_run_need_output(s, e);
    if (o.format != SPX_NO_CHOICE)
        format = (spx_plot_format)o.format;
    else if (st == SPX_OK && !text && strcmp(s->common.output, "-") != 0)
        st = spx_plot_format_of(s->common.output, &format, e);
    if (st == SPX_OK && o.wavelength != NULL)
        st = parse_range(o.wavelength, "--wavelength", "MIN,MAX", args.wave, e);
    if (st == SPX_OK && o.region != NULL)
        st = parse_region(args.region, e);
    spx_run_step(s, "read");
    if (st == SPX_OK && !many && (st = spx_all_inputs(s, s->ninput, s->input, &all, e)) == SPX_OK) {
        args.n = all.n;
        args.in = all.in;
        args.name = all.name;
    }
    if (st == SPX_OK)
        st = draw(s, &p, format, e);
    spx_picture_free(&p);
    spx_inputs_free(&all);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specplot",
                                        .summary = "pictures of products",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specplot -o fit.png rv.h5 spectra.h5",
                                        .options = options,
                                        .flags = SPX_OUT_OTHER | SPX_OUT_LATE,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
