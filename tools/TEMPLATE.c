/* TEMPLATE: start a new program from here. `make tests` builds it, nothing installs it.
 *
 * It takes some of the spectra of a file, and shows the five steps that every program has: open the input, read blocks
 * into memory, one call into a stage for the whole batch, write blocks, commit the output. A program of its own has a
 * kernel in kernels/NAME/ in place of spx_spectra_subset(), a page man/NAME.1.in, tests/NAME.bats, and a line in
 * README.md and man/specpipe.7.in. */
#include "app/main.h"
#include "base/parse.h"
#include "h5/file.h"
#include "products/spectra_h5.h"

static struct {
    const char *rows;
    int bytes; /* of a number of the output */
} o = {.rows = "0:1", .bytes = sizeof(float)};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "rows", 'r', "FIRST:LAST", o.rows, "Spectra to take, counted from 0, without LAST"),
    SPX_OPTION(CHOICE, "precision", 0, NULL, o.bytes, "Floating-point type of the output",
               .choices = SPX_CHOICES({"float", sizeof(float)}, {"double", sizeof(double)})),
    {0}};

/* Spectra as asked for: row[*n], to be freed. */
static spx_status rows_asked_for(size_t nspec, size_t **row, size_t *n, spx_err *e)
{
    double range[2];
    size_t found;
    spx_status st = spx_parse_doubles(o.rows, ':', "--rows", "FIRST:LAST", 2, range, &found, e);
    if (st != SPX_OK)
        return st;
    if (found != 2 || range[0] < 0 || !(range[1] > range[0]) || range[1] > (double)nspec)
        return spx_fail(e, SPX_EUSAGE, "--rows %s: should be FIRST:LAST within 0:%zu", o.rows, nspec);
    size_t first = (size_t)range[0];
    *n = (size_t)range[1] - first;
    if ((*row = spx_alloc(*n, sizeof **row, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < *n; i++)
        (*row)[i] = first + i;
    return SPX_OK;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_input *in;
    spx_spectra spectra = {0}, taken = {0};
    size_t *row = NULL, n = 0;
    hid_t file;

    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one input file, not %zu", s->ninput);

    /* 1. input, 2. blocks in memory */
    spx_run_step(s, "read");
    spx_status st = spx_run_input(s, 0, &in, e);
    if (st == SPX_OK)
        st = spx_spectra_read(in->file, 1, &spectra, e);

    /* 3. one call for the whole batch */
    spx_run_step(s, "take");
    if (st == SPX_OK)
        st = rows_asked_for(spectra.nspec, &row, &n, e);
    if (st == SPX_OK)
        st = spx_spectra_subset(&spectra, n, row, &taken, e);

    /* 4. blocks in the output, 5. commit */
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, "spectra", &file, e);
    if (st == SPX_OK)
        st = spx_spectra_write(file, &taken, o.bytes, e);
    if (st == SPX_OK)
        st = spx_run_record(s, "spectra_taken", e, "%zu", n);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    spx_free(row);
    spx_spectra_free(&spectra);
    spx_spectra_free(&taken);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "TEMPLATE",
                                        .summary = "take some of the spectra of a file",
                                        .usage = "[OPTION...] [FILE]",
                                        .example = "TEMPLATE --rows 0:10 -o some.h5 spectra.h5",
                                        .options = options,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
