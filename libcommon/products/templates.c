/* Provides block `templates` (products/templates.h). */
#include "products/templates.h"

#include <string.h>

#include "base/mem.h"

void spx_nn_count(const spx_nn *nn, size_t *nweight, size_t *nbias)
{
    *nweight = *nbias = 0;
    for (size_t l = 0; l < nn->nlayer; l++) {
        *nweight += nn->size[l] * nn->size[l + 1];
        *nbias += nn->size[l + 1];
    }
}

void spx_nn_free(spx_nn *nn)
{
    spx_free(nn->weight);
    spx_free(nn->bias);
    *nn = (spx_nn){0};
}

void spx_ccf_pca_free(spx_ccf_pca *p)
{
    spx_free(p->comp);
    spx_free(p->coef);
    *p = (spx_ccf_pca){0};
}

void spx_setup_free(spx_setup *s)
{
    spx_free(s->params);
    spx_free(s->lnflux);
    spx_free(s->lnnorm);
    spx_free(s->filled);
    for (size_t i = 0; i < SPX_MAX_PAR; i++)
        spx_free(s->axis[i]);
    spx_free(s->node);
    spx_free(s->simplex);
    spx_free(s->pca.mean);
    spx_free(s->pca.comp);
    spx_free(s->pca.coef);
    spx_nn_free(&s->nn);
    spx_free(s->ccf.params);
    spx_free(s->ccf.vsini);
    spx_free(s->ccf.flux);
    spx_free(s->ccf.fft);
    spx_free(s->ccf.fft2);
    spx_ccf_pca_free(&s->ccf.pca);
    memset(s, 0, sizeof *s);
}

void spx_templates_free(spx_templates *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->nsetup; i++)
        spx_setup_free(&t->setup[i]);
    spx_free(t->setup);
    memset(t, 0, sizeof *t);
}
