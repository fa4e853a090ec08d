/* Collects notes on files of spectra (convert/spectrum/notes.h). */
#include "convert/spectrum/notes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/spectrum/identity.h"
#include "fits/cards.h"

void spx_notes_hear(spx_notes *said, const char *file, size_t k, int is)
{
    if (is && said->count[k]++ == 0)
        said->first[k] = file;
}

void spx_notes_correction(const spx_fits *f, char *text, size_t size)
{
    static const char *const key[] = {"ESO QC VRAD BARYCOR",
                                      "ESO DRS BERV",
                                      "TNG DRS BERV",
                                      "OHP DRS BERV",
                                      "BARYCORR",
                                      "BERV",
                                      "VHELIO",
                                      "HELIOVEL",
                                      "HELIO_RV"};
    double v;
    for (size_t i = 0; f->nhdu > 0 && i < sizeof key / sizeof *key && !text[0]; i++)
        if (spx_cards_double(&f->hdu[0].header, key[i], &v) && fabs(v) < 100)
            snprintf(text, size, " (%s = %g)", key[i], v);
}

spx_status spx_notes_say(const spx_notes *said, spx_note_list *notes, spx_err *e)
{
    static const char *const text[] = {
        "no errors are given: they are taken from the scatter of neighbouring pixels, so that chi squared says little",
        "wavelengths are taken for vacuum, as the file does not say: --air otherwise",
        "the frame of the wavelengths is unknown: whether the motion of the Earth was taken out is not said",
        "the motion of the Earth is in the wavelengths, and in velocities that are measured on them"};
    spx_status st = SPX_OK;
    if (said->nblank > 0)
        st = spx_note_list_add(notes, e, "%s: orders without wavelengths are left out: %zu", said->blank, said->nblank);
    for (int k = 0; k < 4 && st == SPX_OK; k++) {
        const char *more = k >= 2 ? said->correction : "";
        if (said->count[k] == 1)
            st = spx_note_list_add(notes, e, "%s: %s%s", said->first[k], text[k], more);
        else if (said->count[k] > 1)
            st = spx_note_list_add(notes, e, "%s and %zu other files: %s%s", said->first[k], said->count[k] - 1,
                                   text[k], more);
    }
    return st;
}

void spx_unit_of_flux(const spx_spectrum_file *file, const spx_fits_spectrum *s, char unit[64])
{
    if (s->flux.hdu < 0)
        return;
    const spx_fits_hdu *h = &file->f->hdu[s->flux.hdu];
    char text[72] = "";
    if (s->flux.column >= 0)
        memcpy(text, h->col[s->flux.column].unit, sizeof text);
    if (!text[0])
        (void)spx_cards_string(&h->header, "BUNIT", text, sizeof text);
    if (!text[0] && strcmp(s->arm, "sdss") == 0)
        snprintf(text, sizeof text, "10**-17 erg/(s cm2 Angstrom)");
    spx_clean_text(unit, 64, text);
}

int spx_precision_of(const spx_grid *b, size_t n, const spx_spectrum_file *file)
{
    static const double MOST = 1e30;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < file[i].found->n; k++) {
            const spx_fits_values *v = &file[i].found->s[k].flux;
            if (v->hdu < 0)
                return 8;
            const spx_fits_hdu *h = &file[i].f->hdu[v->hdu];
            if (v->column < 0 ? h->bitpix == -64 : h->col[v->column].code == 'D')
                return 8;
        }
    for (size_t i = 0; i < b->nloaded; i++)
        for (size_t k = 0; k < b->l[i].n; k++)
            if (b->l[i].ivar[k] > MOST || fabs(b->l[i].flux[k]) > MOST)
                return 8;
    return 4;
}
