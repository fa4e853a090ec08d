/* Writes the block `spectra` from files (spectrum.h): loads all spectra, places them on grids, writes arms and
 * fibermap. */
#include "convert/spectrum/spectrum.h"

#include <stdio.h>

#include "base/mem.h"
#include "convert/spectrum/grid.h"
#include "convert/spectrum/identity.h"
#include "convert/spectrum/load.h"
#include "convert/spectrum/notes.h"
#include "fits/cards.h"
#include "products/spectra_h5.h"

/* Assigns rows of the block: row at which each file begins, and identity of each row. */
static spx_status give_rows(size_t n, const spx_spectrum_file *file, size_t *first, spx_identity **row, size_t *nrow,
                            spx_err *e)
{
    size_t total = 0;
    spx_identity *id = spx_alloc(n, sizeof *id, e);
    if (id == NULL)
        return SPX_EIO;
    *nrow = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        spx_identify(&file[i], &id[i]);
        while (k < i && !(spx_identity_joins(&file[k], &id[k], &file[i], &id[i])))
            k++;
        first[i] = k < i ? first[k] : *nrow;
        *nrow += k < i ? 0 : id[i].rows;
        total = *nrow;
    }
    *row = spx_alloc(total, sizeof **row, e);
    for (size_t i = n; *row != NULL && i-- > 0;) /* the first file of a row names it */
        for (size_t r = 0; r < id[i].rows; r++) {
            spx_identity *to = &(*row)[first[i] + r];
            *to = id[i];
            if (id[i].rows > 1 && id[i].by_file) { /* spectra of several stars that have no names */
                char name[SPX_FILE_NAME + 24];
                snprintf(name, sizeof name, "%s %zu", id[i].file, r);
                to->target = spx_text_hash(name);
                to->fiber = (int32_t)r;
            }
        }
    spx_free(id);
    return *row != NULL ? SPX_OK : SPX_EIO;
}

/* Loads all spectra of a file. */
static spx_status load_file(spx_grid *b, const spx_spectrum_file *file, spx_notes *said, spx_err *e)
{
    spx_spectrum_cache k = {0};
    int no[4] = {0};
    size_t blank = 0;
    const size_t before = b->nloaded;
    spx_status st = SPX_OK;
    for (size_t j = 0; j < file->found->n && st == SPX_OK; j++) {
        spx_loaded *l = &b->l[b->nloaded];
        const spx_fits_spectrum *s = &file->found->s[j];
        spx_fits_noise noise = s->kind;
        st = spx_spectrum_load(file, s, &k, l, &noise, e);
        if (st == SPX_OK && l->n < 2) {
            spx_loaded_free(l);
            *l = (spx_loaded){0};
            blank++;
            continue;
        }
        no[0] = no[0] || noise == SPX_NOISE_NONE;
        no[1] = no[1] || s->medium < 0;
        no[2] = no[2] || s->barycentric < 0;
        no[3] = no[3] || s->barycentric == 0;
        b->nloaded++; /* counted first: it is freed also after a failure */
    }
    if (st == SPX_OK && blank == file->found->n)
        st = spx_fail_at(e, SPX_EINPUT, file->name, NULL, NULL,
                         "has no wavelengths: all are 0 or no numbers (--generic keeps it)");
    spx_free(k.wave.v);
    spx_free(k.flux.v);
    spx_free(k.noise.v);
    spx_free(k.mask.v);
    if (st != SPX_OK) {
        for (; b->nloaded > before; b->nloaded--) {
            spx_loaded_free(&b->l[b->nloaded - 1]);
            b->l[b->nloaded - 1] = (spx_loaded){0};
        }
        return st;
    }
    said->blank = said->nblank == 0 ? file->name : said->blank;
    said->nblank += blank;
    for (size_t j = 0; j < 4; j++)
        spx_notes_hear(said, file->name, j, no[j]);
    if (no[2] || no[3])
        spx_notes_correction(file->f, said->correction, sizeof said->correction);
    return SPX_OK;
}

/* Loads all files, and copies those that could be read to file[*m]; end[]: number of spectra up to the end of each. */
static spx_status load_all(spx_grid *b, size_t n, spx_spectrum_file *from, size_t *m, spx_spectrum_file *file,
                           size_t *end, spx_failures *failed, spx_notes *said, spx_err *e)
{
    spx_status st = SPX_OK;
    *m = 0;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        st = spx_failures_note(failed, load_file(b, &from[i], said, e), &from[i].left_out, e);
        if (from[i].left_out)
            continue;
        file[*m] = from[i];
        end[(*m)++] = b->nloaded;
    }
    return st == SPX_OK && *m == 0 ? spx_fail(e, SPX_EINPUT, "no spectrum could be read: see above") : st;
}

spx_status spx_fits_spectra_write(size_t nfile, spx_spectrum_file *files, hid_t out, spx_failures *failed,
                                  spx_note_list *notes, spx_err *e)
{
    spx_grid b = {0};
    spx_notes said = {0};
    spx_identity *row = NULL;
    int64_t *target = NULL;
    size_t n = 0, *first = spx_alloc(nfile, sizeof *first, e), *end = spx_alloc(nfile, sizeof *end, e);
    spx_spectrum_file *file = spx_alloc(nfile, sizeof *file, e);
    for (size_t i = 0; i < nfile; i++)
        b.capacity += files[i].found->n;
    b.l = spx_alloc(b.capacity, sizeof *b.l, e);
    spx_status st = first != NULL && end != NULL && file != NULL && b.l != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK)
        st = load_all(&b, nfile, files, &n, file, end, failed, &said, e);
    if (st == SPX_OK)
        st = give_rows(n, file, first, &row, &b.s.nspec, e);
    if (st == SPX_OK && (target = spx_alloc(b.s.nspec, sizeof *target, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < b.s.nspec && st == SPX_OK; i++)
        target[i] = row[i].target;
    for (size_t i = 0, j = 0; i < n && st == SPX_OK; i++)
        for (; j < end[i] && st == SPX_OK; j++) {
            spx_loaded *l = &b.l[j];
            const size_t narm = b.s.narm;
            l->row = first[i] + l->from->row;
            st = spx_grid_place(&b, file[i].name, target, l, e);
            b.nplaced++;
            if (st == SPX_OK && b.s.narm > narm)
                spx_unit_of_flux(&file[i], l->from, b.s.arm[narm].unit);
        }
    if (st == SPX_OK)
        st = spx_grid_fill(&b, e);
    if (st == SPX_OK)
        st = spx_identity_fibermap(b.s.nspec, row, &b.s.fibermap, e);
    if (st == SPX_OK && file[0].f->nhdu > 0)
        st = spx_cards_copy(&b.s.header, &file[0].f->hdu[0].header, e);
    if (st == SPX_OK)
        st = spx_spectra_write(out, &b.s, spx_precision_of(&b, n, file), e);
    if (st == SPX_OK)
        st = spx_notes_say(&said, notes, e);
    for (size_t i = 0; i < b.nloaded; i++)
        spx_loaded_free(&b.l[i]);
    spx_free(b.l);
    spx_free(first);
    spx_free(end);
    spx_free(file);
    spx_free(row);
    spx_free(target);
    spx_spectra_free(&b.s);
    return st;
}
