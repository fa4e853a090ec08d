/* Finds the continuum from medians of bins in ln(wavelength) (spectral/continuum.h). */
#include "spectral/continuum.h"

#include <math.h>

#include "base/mem.h"
#include "num/stat.h"
#include "num/wave.h"

int spx_continuum_bins(double ln0, double ln1, size_t n, const double *lnwave, double *width,
                       size_t first[SPX_CONTINUUM_NODES + 1])
{
    double wanted = ceil((ln1 - ln0) / log1p(1000 / SPX_C_KMS));
    int nbin = wanted > 1 ? (wanted < SPX_CONTINUUM_NODES ? (int)wanted : SPX_CONTINUUM_NODES) : 1;
    size_t i = 0;
    *width = (ln1 - ln0) / nbin;
    for (int b = 0; b < nbin; b++) {
        first[b] = i;
        while (i < n && (b == nbin - 1 || lnwave[i] < ln0 + (b + 1) * *width))
            i++;
    }
    first[nbin] = n;
    return nbin;
}

spx_status spx_continuum_find(double ln0, double ln1, size_t n, const double *lnwave, const double *flux,
                              const uint8_t *bad, double *cont, spx_err *e)
{
    double node[SPX_CONTINUUM_NODES], value[SPX_CONTINUUM_NODES], width;
    size_t first[SPX_CONTINUUM_NODES + 1];
    int nbin = spx_continuum_bins(ln0, ln1, n, lnwave, &width, first);
    double *x = spx_alloc(n, sizeof *x, e);
    if (!x)
        return SPX_EIO;

    size_t good = 0;
    for (size_t i = 0; i < n; i++)
        if (!bad || !bad[i])
            x[good++] = fabs(flux[i]);
    double least = good ? 0.01 * spx_median(x, good) : 0;
    if (!(least > 0)) {
        for (size_t i = 0; i < n; i++)
            cont[i] = 1;
        spx_free(x);
        return SPX_OK;
    }

    int nnode = 0;
    for (int b = 0; b < nbin; b++) {
        size_t m = 0;
        for (size_t i = first[b]; i < first[b + 1]; i++)
            if (!bad || !bad[i])
                x[m++] = flux[i];
        if (m < SPX_CONTINUUM_PIXELS)
            continue;
        node[nnode] = ln0 + (b + 0.5) * width;
        value[nnode++] = log(fmax(spx_median(x, m), least));
    }
    if (nnode == 0) {
        node[0] = ln0;
        value[nnode++] = log(100 * least);
    }
    for (size_t k = 0, j = 0; k < n; k++) {
        while (j + 2 < (size_t)nnode && lnwave[k] > node[j + 1])
            j++;
        double slope = nnode > 1 ? (value[j + 1] - value[j]) / (node[j + 1] - node[j]) : 0;
        cont[k] = fmax(exp(value[j] + slope * (lnwave[k] - node[j])), least);
    }
    spx_free(x);
    return SPX_OK;
}
