/* Names that columns and HDUs of wavelengths, fluxes, errors and masks have wherever they come from. */
#ifndef SPX_SPECTRUM_COLUMNS_H
#define SPX_SPECTRUM_COLUMNS_H

#include "convert/spectrum/spectrum.h"

typedef enum { WAVE, FLUX, IVAR, SIGMA, VARIANCE, MASK, ROLES } spx_role;

/* Letters and digits of names that say what they hold, first come first; log10, air and vacuum wavelengths. */
typedef struct {
    spx_role role;
    const char *name;
    int log10, medium;
} spx_column_name;
enum { SPX_NCOLUMN_NAME = 72 };
extern const spx_column_name spx_column_names[SPX_NCOLUMN_NAME];

/* Entry of spx_column_names[] that this is, or -1. */
int spx_column_name_of(const char *text);

/* What holds each role: columns of a table, or HDUs. name[] are entries of spx_column_names[]. */
typedef struct {
    int at[ROLES], name[ROLES];
} spx_column_roles;

/* Nothing holds any role. */
#define SPX_NO_ROLES                                                                                                   \
    ((spx_column_roles){                                                                                               \
        {-1, -1, -1, -1, -1, -1},                                                                                      \
        {SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME}})

/* Column or HDU `at`, called `text`, takes the role of its name, unless one whose name comes first has it. */
void spx_match_role(spx_column_roles *c, int at, const char *text);

/* Which noise a column of a role gives. */
typedef struct {
    spx_role role;
    spx_fits_noise kind;
} spx_noise_role;
extern const spx_noise_role spx_noise_roles[3];

#endif
