#include "common/sim_library.h"

#include "convert/starlib.h"
#include "sim/sim.h"

enum { BATCH = 32 };

spx_status spx_sim_library(const spx_sim_args *o, spx_run *s, spx_err *e)
{
    spx_sim_axis axis[SPX_SIM_NAXIS];
    double w[2] = {0};
    spx_starlib lib = {0};
    spx_target star[BATCH] = {{0}};
    spx_status st = s->ninput == 0 && s->common.output == NULL
                        ? spx_sim_args_wavelength(o, w, e)
                        : spx_fail(e, SPX_EUSAGE, "--library takes no input and no -o: the folder is its value");
    if (st == SPX_OK)
        st = spx_sim_args_axes(o, axis, e);
    if (o->wavelength == NULL) {
        w[0] = 3500; /* the arms, with room for 1000 km/s and a line-spread function */
        w[1] = 9950;
    }
    const size_t n = spx_sim_grid_size(w[0], w[1], o->step);
    if (st == SPX_OK && n < 2)
        st = spx_fail(e, SPX_EUSAGE, "steps of %g Angstrom do not fit into %g to %g", o->step, w[0], w[1]);
    if (st == SPX_OK)
        st = spx_starlib_open(&lib, o->library, s->common.force, e);
    double *wave = st == SPX_OK ? spx_alloc(n, sizeof *wave, e) : NULL;
    double *flux = st == SPX_OK ? spx_alloc2(BATCH, n, sizeof *flux, e) : NULL;
    if (st == SPX_OK && (wave == NULL || flux == NULL))
        st = SPX_EIO;
    if (st == SPX_OK) {
        spx_sim_grid(w[0], o->step, n, wave);
        st = spx_starlib_wavelength(&lib, n, wave, e);
    }
    const size_t total = st == SPX_OK ? spx_sim_nodes(axis) : 0;
    spx_progress *p = spx_progress_start(s->common.progress, "library", "spectra", total);
    for (size_t i = 0; i < total && st == SPX_OK; i += BATCH) {
        const size_t batch = total - i < BATCH ? total - i : BATCH;
        for (size_t k = 0; k < batch; k++)
            spx_sim_node(axis, i + k, &star[k]);
        st = spx_sim_stars(batch, star, n, wave, flux, NULL, p, e);
        for (size_t k = 0; k < batch && st == SPX_OK; k++)
            st = spx_starlib_add(&lib, star[k].teff, star[k].logg, star[k].feh, star[k].alpha, n, flux + k * n, e);
    }
    spx_progress_end(p);
    if (st == SPX_OK)
        st = spx_starlib_commit(&lib, e);
    if (st == SPX_OK)
        spx_note("%s: %zu spectra of %zu samples", o->library, lib.n, n);
    spx_starlib_discard(&lib);
    spx_free(wave);
    spx_free(flux);
    return st;
}
