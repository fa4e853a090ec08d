/* npz2h5: a network that was trained elsewhere, in NumPy's archive, as the block that rvs-template makes templates of;
 * one for each pixel as a library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/main.h"
#include "base/parse.h"
#include "common/payne_library.h"
#include "common/payne_options.h"
#include "num/wave.h"
#include "products/network_h5.h"
#include "products/spectra.h"
#include "products/templates.h"

static struct {
    const char *labels, *wavelength;
    int activation;
    spx_opt_list fix, axis;
    int air, of_flux;
    double slope;
} o = {.wavelength = "wavelength", .activation = SPX_NO_CHOICE, .of_flux = 1, .slope = 0.01};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "labels", 'l', "NAME[:UNIT],...", o.labels,
               "Names of the network's inputs, in order. An input teff:1000 is in units of 1000 K"),
    SPX_OPTION(LIST, "fix", 0, "NAME=VALUE", o.fix,
               "Hold an input at this value, in the parameter's own unit; repeatable"),
    SPX_OPTION(
        LIST, "axis", 0, "NAME=V,V,...", o.axis,
        "Nodes of an input that is not held, of the library that is made of a network for each pixel [six over the "
        "range]; repeatable"),
    SPX_OPTION(
        STRING, "wavelength", 'w', "NAME|FILE.npz|log10:START:STEP|linear:START:STEP", o.wavelength,
        "Wavelengths of the output, Angstrom. An array of the archive, the array wavelength of another one, or a "
        "formula for pixel 0, 1, 2 ..."),
    SPX_OPTION(FLAG, "air", 0, NULL, o.air, "The wavelengths are in air"),
    SPX_OPTION(CHOICE, "activation", 0, NULL, o.activation,
               "Function between the layers [leaky; of a network for each pixel, sigmoid]",
               .choices = SPX_CHOICES({"leaky", SPX_NN_LEAKY}, {"sigmoid", SPX_NN_SIGMOID}, {"silu", SPX_NN_SILU})),
    SPX_OPTION(DOUBLE, "slope", 0, "SLOPE", o.slope, "Slope of leaky where its argument is negative", .min = 0,
               .max = 1),
    SPX_OPTION(CHOICE, "gives", 0, NULL, o.of_flux,
               "The network gives the flux, or its natural logarithm. The flux may be absolute or normalised",
               .choices = SPX_CHOICES({"flux", 1}, {"lnflux", 0}), .was = "output"),
    {0}};

static spx_status wavelengths(spx_run *s, const spx_npz *z, const char *path, spx_network *net, spx_err *e)
{
    spx_npz other = {0};
    spx_status st = SPX_OK;
    size_t len = strlen(o.wavelength);
    int log10_of = strncmp(o.wavelength, "log10:", 6) == 0;
    int of_option = log10_of || strncmp(o.wavelength, "linear:", 7) == 0;
    if ((net->wavelength = spx_alloc(net->nwave, sizeof *net->wavelength, e)) == NULL)
        return SPX_EIO;
    if (of_option) {
        double v[2];
        size_t n = 0;
        st = spx_parse_doubles(strchr(o.wavelength, ':') + 1, ':', "--wavelength",
                               "log10:START:STEP or linear:START:STEP", 2, v, &n, e);
        if (st == SPX_OK && n != 2)
            st = spx_fail(e, SPX_EUSAGE, "--wavelength %s: START:STEP is wanted", o.wavelength);
        if (st == SPX_OK)
            spx_wave_axis(log10_of, v[0], v[1], net->nwave, net->wavelength);
    } else {
        const char *name = o.wavelength;
        if (len > 4 && strcmp(o.wavelength + len - 4, ".npz") == 0) {
            path = o.wavelength;
            name = "wavelength";
            z = &other;
            st = spx_run_foreign_input(s, path, e);
            if (st == SPX_OK)
                st = spx_npz_read(path, &other, e);
        }
        const spx_npz_array *a = st == SPX_OK ? spx_npz_find(z, path, name, 1, &net->nwave, e) : NULL;
        if (a != NULL)
            memcpy(net->wavelength, a->value, net->nwave * sizeof *a->value);
        else if (st == SPX_OK)
            st = spx_err_context(e, "--wavelength");
    }
    spx_npz_free(&other);
    for (size_t i = 0; i < net->nwave && st == SPX_OK; i++)
        if (!(net->wavelength[i] > (i > 0 ? net->wavelength[i - 1] : 0) && net->wavelength[i] < 1e9))
            st = of_option ? spx_fail(e, SPX_EUSAGE,
                                      "--wavelength %s: does not increase from 0 up at pixel %zu (%g Angstrom)",
                                      o.wavelength, i, net->wavelength[i])
                           : spx_fail(e, SPX_EINPUT, "%s: the wavelengths do not increase at pixel %zu (%g Angstrom)",
                                      path, i, net->wavelength[i]);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_payne_label l[SPX_PAYNE_MAX_LABEL];
    size_t nlabel;
    spx_npz z = {0};
    spx_network net = {0};
    spx_payne_pixels pixels = {0};
    hid_t file;
    if (s->ninput != 1 || strcmp(s->input[0], "-") == 0)
        return spx_fail(e, SPX_EUSAGE, "one .npz file is wanted");
    if (o.labels == NULL)
        return spx_fail(e, SPX_EUSAGE, "--labels says what the inputs of the network are: teff:1000,logg,feh");
    spx_status st = spx_payne_parse_labels(o.labels, o.fix.n, o.fix.value, l, &nlabel, e);
    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = spx_run_foreign_input(s, s->input[0], e);
    if (st == SPX_OK)
        st = spx_npz_read(s->input[0], &z, e);
    const int of_pixels = st == SPX_OK && spx_payne_is_of_pixels(&z);
    net.nn.activation = o.activation != SPX_NO_CHOICE ? (spx_nn_activation)o.activation
                        : of_pixels                   ? SPX_NN_SIGMOID
                                                      : SPX_NN_LEAKY;
    net.nn.slope = o.slope;
    net.of_flux = o.of_flux;
    net.medium = o.air ? SPX_AIR : SPX_VACUUM;
    if (of_pixels) {
        st = spx_payne_find_pixels(&z, s->input[0], nlabel, l, &pixels, e);
        net.nwave = pixels.npix;
    } else if (st == SPX_OK && o.axis.n > 0) {
        st = spx_fail_remedy(e, SPX_EUSAGE, "leave it out",
                             "--axis is for a network for each pixel, which becomes a library");
    } else if (st == SPX_OK) {
        st = spx_payne_network(&z, s->input[0], nlabel, l, &net, e);
    }
    if (st == SPX_OK)
        st = wavelengths(s, &z, s->input[0], &net, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, of_pixels ? "library" : "network", &file, e);
    if (st == SPX_OK)
        st = of_pixels
                 ? spx_payne_library(file, &pixels, nlabel, l, o.axis.n, o.axis.value, &net, s->common.progress, e)
                 : spx_network_write(file, &net, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);
    spx_npz_free(&z);
    spx_network_free(&net);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "npz2h5",
                                        .summary = "a network that gives spectra, from NumPy's archive",
                                        .usage = "--labels NAME,... [OPTION...] FILE.npz",
                                        .options = options,
                                        .example = "npz2h5 -l teff:1000,logg,feh -o library.h5 network.npz",
                                        .run = run};
    return spx_main(&program, argc, argv);
}
