/* Provides expressions of one variable, for options such as a resolution R(x): numbers, x, + - * / ^ (also **),
 * parentheses, unary signs, sqrt exp log log10 abs min(a,b) max(a,b), pi. Nothing else is understood, nothing is ever
 * executed. */
#ifndef SPX_EXPR_H
#define SPX_EXPR_H

#include "base/err.h"

enum { SPX_EXPR_MAX = 64 }; /* most steps of one expression */

typedef struct {
    int n;
    struct {
        int op;
        double value;
    } step[SPX_EXPR_MAX]; /* in reverse Polish order */
} spx_expr;

/* Parses `text`. SPX_EUSAGE, with the position of the mistake, when it is no such expression or too long. ^ binds
 * tighter than a sign before it (-x^2 = -(x^2)) and to the right (2^3^2 = 2^9). */
spx_status spx_expr_parse(const char *text, spx_expr *x, spx_err *e);

/* Value at x; not finite where the result is undefined (1/0, log of a negative number). */
double spx_expr_eval(const spx_expr *ex, double x);

#endif
