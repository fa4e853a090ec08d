/* Provides functions and types that the files of kernels/template/ share. */
#ifndef SPX_TEMPLATE_IMPL_H
#define SPX_TEMPLATE_IMPL_H

#include "template/nn_steps.h"
#include "template/template.h"

/* Spectra that are convolved together: samples are [sample][SPX_TEMPLATE_LANES]. */
enum { SPX_TEMPLATE_LANES = 32 };

/* Inner loops for an instruction set (template_lanes.h). */
typedef struct {
    /* n samples of nlane spectra, flux[lane][stride], into sample[n][SPX_TEMPLATE_LANES] */
    void (*transpose)(size_t n, size_t nlane, const float *flux, size_t stride, double *sample);
    /* out[npix][SPX_TEMPLATE_LANES]: pixel k sums sample[first[k] - origin] ... times w[start[k] ... start[k+1]-1] */
    void (*smooth)(size_t npix, const size_t *first, const size_t *start, const double *w, size_t origin,
                   const double *sample, double *out);
    /* natural logarithm in place, as vlog(): x normal and positive; n a multiple of 8 */
    void (*logarithm)(size_t n, double *x);
    /* exp(x) into out, as vexp() */
    void (*exponential)(size_t n, const float *x, double *out);
    /* 1 when one of n values is not finite */
    int (*not_finite)(size_t n, const float *x);
    void (*add)(size_t n, const float *x, double *sum); /* sum += x */
    void (*centre)(size_t n, const float *x, const double *mean, float *out);
    /* largest |x|; the sum of squares is added to *sum */
    double (*largest)(size_t n, const float *x, double *sum);
    /* SiLU a / (1 + exp(-a)) in place, and its derivative unless slope is NULL; to 3e-7 */
    void (*silu)(size_t n, float *a, float *slope);
    /* a step with the gradient g (nn_steps.h) */
    void (*adam)(size_t n, const float *g, const spx_nn_rate *rate, float *m, float *v, float *w);
} spx_template_kernels;

/* The inner loops for this processor. */
const spx_template_kernels *spx_template_kernels_find(void);

/* NULL: the processor lacks the instructions. */
const spx_template_kernels *spx_template_kernels_base(void);
const spx_template_kernels *spx_template_kernels_avx2(void);
const spx_template_kernels *spx_template_kernels_avx512(void);

/* Of a trainer on the CPU: output of the last hidden layer, hidden[n][its neurons]; and setting of weights. */
void spx_nn_hidden_cpu(spx_nn_trainer *l, size_t n, const int32_t *row, float *hidden);
void spx_nn_put_cpu(spx_nn_trainer *l, const float *weight);

/* Sets the setup's name, range and grid, cut to pixels within first ... last (library, in the setup's medium). */
spx_status spx_template_make_grid(const spx_template_request *r, spx_norm norm, double first, double last, spx_setup *s,
                                  size_t *missing, spx_err *e);

/* Wavelength at pixel k, and the edge midway between the centres of pixels k-1 and k. */
double spx_template_wave(const spx_setup *s, double k);
double spx_template_edge(const spx_setup *s, size_t k);

/* Sigma by which the library's spectra are convolved for a setup, beyond the library's own LSF, Angstrom, at each of
 * the s->nwave pixels. */
spx_status spx_template_sigma(const spx_setup *s, const spx_template_request *r, const spx_template_config *cfg,
                              double *sigma, spx_err *e);

/* Delaunay triangulation of x[s->ntemp][dim], dim > 1: sets simplex, nsimplex, ncorner. SPX_EINPUT: they span no
 * volume. */
spx_status spx_template_delaunay(spx_setup *s, size_t dim, double *x, spx_err *e);

#endif
