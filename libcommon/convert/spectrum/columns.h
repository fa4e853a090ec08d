/* Provides the usual names of columns and HDUs of wavelengths, fluxes, errors and masks, and assigns roles by them. */
#ifndef SPX_SPECTRUM_COLUMNS_H
#define SPX_SPECTRUM_COLUMNS_H

#include "convert/spectrum/spectrum.h"

typedef enum { WAVE, FLUX, IVAR, SIGMA, VARIANCE, MASK, ROLES } spx_role;

/* Names, reduced to letters and digits, in order of preference; log10, air and vacuum wavelengths. */
typedef struct {
    spx_role role;
    const char *name;
    int log10, medium;
} spx_column_name;
enum { SPX_NCOLUMN_NAME = 72 };
extern const spx_column_name spx_column_names[SPX_NCOLUMN_NAME];

/* Index in spx_column_names[] of the name `text`, or -1. */
int spx_column_name_of(const char *text);

/* Assignment of roles to columns of a table, or to HDUs. name[] are indices in spx_column_names[]. */
typedef struct {
    int at[ROLES], name[ROLES];
} spx_column_roles;

/* No role is assigned. */
#define SPX_NO_ROLES                                                                                                   \
    ((spx_column_roles){                                                                                               \
        {-1, -1, -1, -1, -1, -1},                                                                                      \
        {SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME, SPX_NCOLUMN_NAME}})

/* Assigns column or HDU `at`, called `text`, to the role of its name, unless one with a preferred name has it. */
void spx_match_role(spx_column_roles *c, int at, const char *text);

/* Kind of noise that a column of each role gives. */
typedef struct {
    spx_role role;
    spx_fits_noise kind;
} spx_noise_role;
extern const spx_noise_role spx_noise_roles[3];

#endif
